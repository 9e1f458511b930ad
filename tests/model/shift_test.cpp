// Decoder::shift: keys behind removed tiles are those of RoPE at their new positions, each layer by its own base.
#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "support/model_runner.h"

namespace carat::test {
namespace {

constexpr std::uint32_t kTokens = 387;  // six full tiles and three tokens: windows of 8 reach into the tile before
constexpr std::uint32_t kBegin = 1;
constexpr std::uint32_t kCount = 2;
constexpr std::uint32_t kMoved = kCount * kTileTokens;

std::string tiny(const std::string& name) { return CARAT_FIXTURES "/tiny/" + name + "/model.gguf"; }

struct Case {
  std::string model;
  KvType form;
};

struct Head {
  std::vector<float> keys;  ///< [64][head_dim]
  std::vector<float> values;
};

class Shift : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RunnerOptions options;
    options.ask.parallel = 2;
    options.ask.kv_local = std::min(GetParam().form, KvType::q8);
    options.ask.kv_global = GetParam().form;
    options.ask.kv_global_bytes = 1;  // auto: as small as may be, so that most tiles are q2
    runner_ = ModelRunner::load(tiny(GetParam().model), options);
    ASSERT_NE(runner_, nullptr);
    sequence_ = runner_->open();
    std::vector<std::int32_t> tokens(kTokens);
    for (std::uint32_t i = 0; i < kTokens; ++i) tokens[i] = static_cast<std::int32_t>(3 + i * 37 % 250);
    runner_->run_chunked(sequence_, tokens, 64);
  }

  bool in_tail(SequenceId sequence, std::uint32_t layer, std::uint32_t position) {
    return runner_->kv().view(sequence, layer).tail != nullptr &&
           position / kTileTokens == runner_->kv().tokens(sequence) / kTileTokens;
  }

  /// Of the tile that has the token of a position: the tail, if the tile is not full.
  KvTileLayout layout_at(SequenceId sequence, std::uint32_t layer, std::uint32_t position) {
    const KvView view = runner_->kv().view(sequence, layer);
    if (in_tail(sequence, layer, position)) return *view.tail_layout;
    if (view.types == nullptr) return view.layout;
    return view.forms[static_cast<std::size_t>(view.types[position / kTileTokens])];
  }

  /// One head of that tile.
  Head head_at(SequenceId sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t position) {
    const KvView view = runner_->kv().view(sequence, layer);
    const std::size_t floats = std::size_t{kTileTokens} * view.layout.head_dim;
    Head out{std::vector<float>(floats), std::vector<float>(floats)};
    (*select_kernel_table("ref"))
        ->kv_load_tile(layout_at(sequence, layer, position),
                       in_tail(sequence, layer, position) ? view.tail : view.tile(position / kTileTokens), head,
                       out.keys.data(), out.values.data());
    return out;
  }

  /// What a window of 8 tokens, or no window, sees at the end.
  std::uint32_t oldest(std::uint32_t layer, std::uint32_t tokens) const {
    const LayerSpec& spec = runner_->config().layers[layer];
    return spec.attention == AttentionKind::global ? 0 : tokens - std::min(tokens, spec.window - 1);
  }

  std::unique_ptr<ModelRunner> runner_;
  SequenceId sequence_ = 0;
};

/// `key` turned `moved` positions back, in double.
std::vector<double> turned_back(const ModelConfig& config, const float* factors, std::uint32_t layer,
                                const float* key) {
  const RopeSpec& rope = config.layers[layer].rope;
  const std::uint32_t half = config.head_dim / 2;
  std::vector<double> out(config.head_dim);
  for (std::uint32_t i = 0; i < half; ++i) {
    double angle = -static_cast<double>(kMoved) * std::pow(rope.base, -2.0 * i / config.head_dim) / rope.factor;
    if (factors != nullptr) angle /= static_cast<double>(factors[i]);
    const double a = key[i];
    const double b = key[half + i];
    out[i] = a * std::cos(angle) - b * std::sin(angle);
    out[half + i] = a * std::sin(angle) + b * std::cos(angle);
  }
  return out;
}

/// Most a key may differ, L2: 1e-5 of it in f32, else one step of its form in each element.
double step_of(KvType form, std::uint32_t head_dim, double norm) {
  switch (form) {
    case KvType::f32: return 1e-5 * norm;
    case KvType::bf16: return norm / 256;
    default: return 1.01 * std::sqrt(head_dim) * norm / 127;  // q8: the largest rotated element is at most the norm
  }
}

/// The step of one channel of a form below 8 bits, from the range of its 64 keys.
double channel_step(KvType form, const Head& head, std::uint32_t head_dim, std::uint32_t channel) {
  float low = head.keys[channel];
  float high = low;
  for (std::uint32_t slot = 1; slot < kTileTokens; ++slot) {
    low = std::min(low, head.keys[slot * head_dim + channel]);
    high = std::max(high, head.keys[slot * head_dim + channel]);
  }
  return (high - low) / (form == KvType::q4 ? 15 : form == KvType::q3 ? 7 : 3);
}

TEST_P(Shift, KeysAreThoseOfTheirNewPositions) {
  const ModelConfig& config = runner_->config();
  const bool tiered = GetParam().form == KvType::automatic;
  const SequenceId other = tiered ? sequence_ : runner_->kv().fork(sequence_, kTokens).value();
  std::vector<std::vector<Head>> before(config.layers.size());  // [layer][head * tiles + tile], of old positions
  const std::uint32_t tiles = ceil_div(kTokens, kTileTokens);
  for (std::uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    for (std::uint32_t head = 0; head < config.kv_heads; ++head) {
      for (std::uint32_t t = 0; t < tiles; ++t)
        before[layer].push_back(head_at(sequence_, layer, head, t * kTileTokens));
    }
  }
  ASSERT_TRUE(runner_->decoder().shift(runner_->kv(), sequence_, kBegin, kCount).ok());
  const std::uint32_t left = runner_->kv().tokens(sequence_);
  ASSERT_EQ(left, kTokens - kMoved);
  const std::uint32_t dim = config.head_dim;
  std::uint32_t compared = 0;
  for (std::uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    for (std::uint32_t head = 0; head < config.kv_heads; ++head) {
      for (std::uint32_t position = oldest(layer, left); position < left; ++position) {
        const bool stays = position < kBegin * kTileTokens;
        const std::uint32_t was = stays ? position : position + kMoved;
        const Head& old = before[layer][head * tiles + was / kTileTokens];
        const Head now = head_at(sequence_, layer, head, position);
        const float* old_key = old.keys.data() + was % kTileTokens * dim;
        const float* key = now.keys.data() + position % kTileTokens * dim;
        const auto value = now.values.begin() + position % kTileTokens * dim;
        ASSERT_TRUE(std::equal(value, value + dim, old.values.begin() + was % kTileTokens * dim)) << "values stay";
        if (stays) {
          ASSERT_TRUE(std::equal(key, key + dim, old_key)) << position;
          continue;
        }
        const std::vector<double> expected = turned_back(config, runner_->weights().rope_factors, layer, old_key);
        double apart = 0;
        double norm = 0;
        for (std::uint32_t i = 0; i < dim; ++i) {
          apart += (expected[i] - key[i]) * (expected[i] - key[i]);
          norm += expected[i] * expected[i];
        }
        const KvType form = layout_at(sequence_, layer, position).type;
        const auto where = testing::Message() << "layer " << layer << " head " << head << " position " << position;
        for (std::uint32_t i = 0; needs_full_tiles(form) && i < dim; ++i) {
          ASSERT_LE(std::abs(expected[i] - key[i]), 0.52 * channel_step(form, now, dim, i))
              << where << " channel " << i;
        }
        if (!needs_full_tiles(form)) {
          ASSERT_LE(std::sqrt(apart), step_of(form, dim, std::sqrt(norm))) << where;
        }
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, config.kv_heads * (left - kBegin * kTileTokens)) << "a global layer at least";
  if (tiered) return;
  // The sequence that shared the pages has them as they were.
  for (std::uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    for (std::uint32_t position = oldest(layer, kTokens); position < kTokens; position += 7) {
      const Head& old = before[layer][position / kTileTokens];
      const Head now = head_at(other, layer, 0, position);
      const auto key = now.keys.begin() + position % kTileTokens * dim;
      ASSERT_TRUE(std::equal(key, key + dim, old.keys.begin() + position % kTileTokens * dim)) << position;
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const KvType form : {KvType::f32, KvType::bf16, KvType::q8, KvType::q4, KvType::q2, KvType::automatic})
    all.push_back({"gemma3-gqa42", form});
  all.push_back({"llama3-scaled", KvType::f32});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Forms, Shift, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.model + "_" + std::string(carat::name(info.param.form));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace carat::test
