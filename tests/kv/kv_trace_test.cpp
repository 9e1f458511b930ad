// Random traces of everything a KvPool does, in every form, against a model of plain lists of tokens. Each token has a
// tag, each tag its rows of keys and values: what a view shows at a position must be the rows of the model's tag there.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kv/kv_pool.h"
#include "support/random.h"

namespace carat {
namespace {

constexpr std::uint32_t kHeadDim = 16;
constexpr unsigned kTraces = 10'000;
constexpr int kSteps = 20;

using Row = std::array<float, kHeadDim>;

/// Integers in [-128, 127], which f32 and bf16 hold exactly.
Row row_of(std::uint32_t tag, std::uint32_t layer, std::uint32_t head, bool value) {
  Row row;
  std::uint64_t state = (std::uint64_t{tag} << 32) + layer * 4 + head * 2 + (value ? 1 : 0);
  for (std::uint32_t half = 0; half < kHeadDim; half += 8) {
    std::uint64_t z = state += 0x9E3779B97F4A7C15U;  // splitmix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    z ^= z >> 31;
    for (std::uint32_t i = 0; i < 8; ++i) row[half + i] = static_cast<float>(static_cast<std::int8_t>(z >> 8 * i));
  }
  return row;
}

/// Bounds on the L2 distance of a stored row. Rows of two tags are about 16 channels * sqrt(2) * 74 = 420 apart.
/// q8: a rotated row's largest element is at most its norm, 4 * 128; each is rounded by half of 1/127 of that, the norm
/// of 16 such errors is 8. Below: half a step of the range, which is 255 for keys; the range of 16 rotated values is at
/// most 2 * 512, and rarely above half of that; half a step of it is 512 / (2 * levels), times 4.
float tolerance(KvType form) {
  switch (form) {
    case KvType::f32:
    case KvType::bf16: return 0;
    case KvType::q8: return 8;
    case KvType::q4: return 80;
    case KvType::q3: return 150;
    default: return 330;
  }
}

struct Token {
  std::uint32_t tag = 0;
  float rounded = 0;  ///< L2 of errors of forms it went through before its tile's
};

struct Sequence {
  std::vector<Token> tokens;
  std::uint32_t most = 0;  ///< tokens ever: rings that hold so many lost nothing
  bool removed = false;
};

class Trace {
 public:
  Trace(unsigned seed, KvType global, KvEviction eviction) : random_(seed), seed_(seed) {
    const std::uint32_t locals = random_() % 3;
    const std::uint32_t globals = random_() % 3;
    config_.kv_heads = random_() % 4 == 0 ? 2 : 1;
    config_.heads = 2 * config_.kv_heads;
    config_.head_dim = kHeadDim;
    config_.layers.resize(std::max(1U, locals + globals));
    for (std::uint32_t i = 0; i < locals; ++i) {
      config_.layers[i] = {AttentionKind::local, 20 + random_() % 120, {}};
    }
    constexpr std::array<KvType, 6> kLocal{KvType::f32, KvType::bf16, KvType::q8, KvType::q4, KvType::q3, KvType::q2};
    ask_ = {.context = 1 + random_() % 600,
            .parallel = 1 + random_() % 4,
            .chunk = 1 + random_() % 200,
            .kv_local = kLocal[random_() % kLocal.size()],
            .kv_global = global,
            .kv_global_bytes = 1 + random_() % 3 * (random_() % 100'000),
            .eviction = eviction,
            .kept_tokens = 64 * (random_() % 8)};
    if (eviction == KvEviction::none) ask_.kept_tokens = 0;
    sizes_ = make_kv_sizes(config_, ask_);
    auto pool = KvPool::create(budget_, config_, ask_, kernels());
    EXPECT_TRUE(pool.ok()) << pool.status().message();
    pool_ = std::move(pool).value();
  }

  void run() {
    for (step_ = 0; step_ < kSteps && !testing::Test::HasFailure(); ++step_) {
      act();
      check_counts();
    }
    thorough_ = true;
    for (const auto& [id, sequence] : open_) {
      for (std::uint32_t layer = 0; layer < layers(); ++layer) check_layer(id, layer);
    }
    check_apart();
    while (!open_.empty()) {
      pool_.close(open_.begin()->first);
      open_.erase(open_.begin());
      check_counts();
    }
    EXPECT_EQ(pool_.free_pages(), pool_.pages()) << where();
  }

 private:
  static const KernelTable& kernels() { return *usable_kernel_tables().front(); }
  std::uint32_t layers() const { return static_cast<std::uint32_t>(config_.layers.size()); }
  bool is_local(std::uint32_t layer) const { return config_.layers[layer].attention == AttentionKind::local; }
  bool tiered() const { return sizes_.tiered_bytes > 0; }
  bool evicts() const { return ask_.eviction != KvEviction::none; }
  bool has_tail(bool local) const {
    const KvType type = local ? ask_.kv_local : ask_.kv_global;
    return needs_full_tiles(type) || type == KvType::automatic;
  }
  std::string where() const {
    return fmt::format("seed {} step {} {}+{} {} ctx {} chunk {}", seed_, step_, name(ask_.kv_local),
                       name(ask_.kv_global), name(ask_.eviction), ask_.context, ask_.chunk);
  }
  SequenceId any_sequence() {
    auto one = open_.begin();
    std::advance(one, random_() % open_.size());
    return one->first;
  }

  void act() {
    const unsigned action = open_.empty() ? 0 : random_() % 16;
    if (action <= 1) return open();
    const SequenceId id = any_sequence();
    if (action == 2) {
      pool_.close(id);
      open_.erase(id);
    } else if (action <= 4) {
      fork(id);
    } else if (action <= 6) {
      trim(id);
    } else if (action <= 8) {
      remove_tiles(id);
    } else {
      grow(id);
    }
  }

  void open() {
    const auto opened = pool_.open();
    ASSERT_EQ(opened.ok(), open_.size() < ask_.parallel) << where();
    if (!opened.ok()) return;
    ASSERT_FALSE(open_.contains(*opened)) << where();
    open_[*opened] = {};
  }

  void grow(SequenceId id) {
    Sequence& s = open_[id];
    const auto before = static_cast<std::uint32_t>(s.tokens.size());
    // As the engine does, a token or a chunk at a time; sometimes more.
    const std::uint32_t more = random_() % 4 == 0 ? random_() % 400 : 1 + random_() % ask_.chunk;
    const std::uint32_t wanted = before + more;
    const Status status = pool_.reserve(id, wanted);
    if (wanted > ask_.context || !evicts() || more <= ask_.chunk) {
      ASSERT_EQ(status.ok(), wanted <= ask_.context) << where() << ": " << status.message();
    }
    if (!status.ok()) return check_all(id);
    s.most = std::max(s.most, wanted);
    for (std::uint32_t p = before; p < wanted; ++p) {
      s.tokens.push_back({++next_tag_, 0});
    }
    for (std::uint32_t layer = 0; layer < layers(); ++layer) write(id, layer, before);
    attend(id);
  }

  /// What the attention operator stores, and in what form.
  void write(SequenceId id, std::uint32_t layer, std::uint32_t first) {
    const KvView view = pool_.view(id, layer);
    const KvTileLayout& layout = view.tail == nullptr ? view.layout : *view.tail_layout;
    const auto store = layout.type == KvType::q8 ? kernels().kv_store_q8 : kernels().kv_store;
    const std::vector<Token>& tokens = open_[id].tokens;
    std::vector<float> keys(std::size_t{config_.kv_heads} * kHeadDim);
    std::vector<float> values(keys.size());
    for (std::uint32_t p = first; p < tokens.size(); ++p) {
      for (std::uint32_t head = 0; head < config_.kv_heads; ++head) {
        std::ranges::copy(row_of(tokens[p].tag, layer, head, false), keys.begin() + head * kHeadDim);
        std::ranges::copy(row_of(tokens[p].tag, layer, head, true), values.begin() + head * kHeadDim);
      }
      std::byte* to = view.tail == nullptr ? view.tile(p / kTileTokens) : view.tail;
      store(layout, to, p % kTileTokens, keys.data(), values.data());
      if (view.tail != nullptr && p % kTileTokens == kTileTokens - 1) fill_tile(view, p / kTileTokens);
    }
  }

  void fill_tile(const KvView& view, std::uint32_t tile) {
    const std::uint32_t entry = tile % view.table_size;
    const KvTileLayout& to = view.types == nullptr ? view.layout : view.forms[static_cast<int>(view.types[entry])];
    if (to.type == KvType::q8) {
      std::copy(view.tail, view.tail + to.bytes(), view.tile(tile));
      return;
    }
    for (std::uint32_t head = 0; head < to.kv_heads; ++head) {
      kernels().kv_load_tile(*view.tail_layout, view.tail, head, keys_.data(), values_.data());
      kernels().kv_store_tile(to, view.tile(tile), head, keys_.data(), values_.data());
    }
  }

  /// Attention mass, which makes `auto` and eviction choose.
  void attend(SequenceId id) {
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      const KvView view = pool_.view(id, layer);
      if (view.mass == nullptr) continue;
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t head = random_() % config_.kv_heads;
        view.mass[head * view.mass_stride + random_() % view.table_size] += static_cast<float>(random_() % 100) / 10;
      }
    }
  }

  bool rings_lost_nothing(const Sequence& s) const {
    for (const LayerSpec& layer : config_.layers) {
      if (layer.attention != AttentionKind::local) continue;
      if (s.most > ring_tiles(layer.window, ask_) * kTileTokens) return false;
    }
    return true;
  }

  void trim(SequenceId id) {
    Sequence& s = open_[id];
    const std::uint32_t left = shorter(s);
    const Status status = pool_.trim(id, left);
    if (left == 0 || (rings_lost_nothing(s) && !evicts())) {
      ASSERT_TRUE(status.ok()) << where() << status.message();
    }
    if (status.ok()) forget(s, left);
    check_all(id);
  }

  std::uint32_t shorter(const Sequence& s) {
    const auto tokens = static_cast<std::uint32_t>(s.tokens.size());
    return random_() % 2 == 0 ? random_() % (tokens + 1) : tokens - std::min(tokens, random_() % 70);
  }

  /// The tile of the last token left was read back into q8 if it was full.
  void forget(Sequence& s, std::uint32_t left) {
    const std::size_t tile = left / kTileTokens;
    if (tile < s.tokens.size() / kTileTokens) {
      for (std::size_t p = tile * kTileTokens; p < left; ++p) s.tokens[p].rounded += rounded_by_filling();
    }
    s.tokens.resize(left);
    if (left == 0) s.most = 0;
  }
  float rounded_by_filling() const {
    float most = 0;
    for (const bool local : {true, false}) {
      if (!has_tail(local)) continue;
      const KvType type = local ? ask_.kv_local : ask_.kv_global;
      most = std::max(most, tolerance(type) + 8 + (type == KvType::automatic ? tolerance(KvType::q4) : 0));
    }
    return most;
  }

  void fork(SequenceId id) {
    const Sequence& s = open_[id];
    const std::uint32_t kept = shorter(s);
    const auto made = pool_.fork(id, kept);
    if (open_.size() == ask_.parallel || tiered() || evicts()) {
      ASSERT_FALSE(made.ok()) << where();
    } else if (rings_lost_nothing(s)) {
      ASSERT_TRUE(made.ok()) << where() << made.status().message();
    }
    check_all(id);
    if (!made.ok()) return;
    ASSERT_FALSE(open_.contains(*made)) << where();
    Sequence& copy = open_[*made];
    copy = open_[id];
    forget(copy, kept);
    check_all(*made);
  }

  void remove_tiles(SequenceId id) {
    Sequence& s = open_[id];
    const auto full = static_cast<std::uint32_t>(s.tokens.size()) / kTileTokens;
    if (full == 0) return;
    const std::uint32_t begin = random_() % full;
    const std::uint32_t count = random_() % (full - begin + 1);
    const Status status = pool_.remove_tiles(id, begin, count);
    if (rings_lost_nothing(s)) {
      ASSERT_TRUE(status.ok()) << where() << status.message();
    }
    if (status.ok()) {
      s.tokens.erase(s.tokens.begin() + begin * kTileTokens, s.tokens.begin() + (begin + count) * kTileTokens);
      // From here on `most` is only a bound: a ring that lost tokens stays one.
      if (rings_lost_nothing(s)) s.most -= count * kTileTokens;
      s.removed = s.removed || count > 0;
    }
    check_all(id);
  }

  /// What an operation may have harmed: its own sequence, and another one.
  void check_all(SequenceId id) {
    check_layer(id, random_() % layers());
    check_layer(any_sequence(), random_() % layers());
  }

  /// Local layers: what the next token sees. Global ones: all that was not evicted. On the way some tiles, and always
  /// the last; at the end of a trace all.
  void check_layer(SequenceId id, std::uint32_t layer) {
    if (testing::Test::HasFailure()) return;
    const std::vector<Token>& tokens = open_[id].tokens;
    const auto count = static_cast<std::uint32_t>(tokens.size());
    ASSERT_EQ(pool_.tokens(id), count) << where();
    const KvView view = pool_.view(id, layer);
    std::uint32_t first = 0;
    if (is_local(layer) && count + 1 > config_.layers[layer].window) first = count + 1 - config_.layers[layer].window;
    for (std::uint32_t tile = first / kTileTokens; tile * kTileTokens < count; ++tile) {
      if (!thorough_ && (tile + 1) * kTileTokens < count && random_() % 4 != 0) continue;
      const std::uint32_t begin = std::max(first, tile * kTileTokens);
      const std::uint32_t end = std::min(count, (tile + 1) * kTileTokens);
      check_tile(view, layer, tile, std::span(tokens).subspan(begin, end - begin), begin % kTileTokens);
    }
  }

  void check_tile(const KvView& view, std::uint32_t layer, std::uint32_t tile, std::span<const Token> tokens,
                  std::uint32_t slot) {
    const bool partial = slot + tokens.size() < kTileTokens;
    const std::byte* bytes = nullptr;
    const KvTileLayout* layout = &view.layout;
    if (view.tail != nullptr && partial) {
      bytes = view.tail;
      layout = view.tail_layout;
    } else {
      if (!is_local(layer)) {
        ASSERT_LT(tile, view.table_size) << where();
      }
      const std::uint32_t entry = tile % view.table_size;
      if (view.table[entry] == kNoTile) {
        ASSERT_TRUE(evicts() && !partial) << where();
        return;
      }
      bytes = view.tile(tile);
      if (view.types != nullptr) layout = &view.forms[static_cast<int>(view.types[entry])];
    }
    float allowed = tolerance(layout->type);
    if (view.tail != nullptr && !partial) allowed += 8;
    if (view.types != nullptr && layout->type == KvType::q2) allowed += tolerance(KvType::q4);
    for (std::uint32_t head = 0; head < layout->kv_heads; ++head) {
      kernels().kv_load_tile(*layout, bytes, head, keys_.data(), values_.data());
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::size_t at = (slot + i) * kHeadDim;
        const float bound = allowed + tokens[i].rounded;
        const float keys = distance(row_of(tokens[i].tag, layer, head, false), keys_.data() + at);
        const float values = distance(row_of(tokens[i].tag, layer, head, true), values_.data() + at);
        ASSERT_TRUE(keys <= bound && values <= bound)
            << where() << " layer " << layer << " tile " << tile << " slot " << slot + i << " form "
            << name(layout->type) << ": " << keys << " and " << values << " from what was written, allowed " << bound;
      }
    }
  }
  static float distance(const Row& wanted, const float* found) {
    float sum = 0;
    for (std::size_t d = 0; d < kHeadDim; ++d) sum += (wanted[d] - found[d]) * (wanted[d] - found[d]);
    return std::sqrt(sum);
  }

  /// Free pages, references, utilisation and the bytes of `auto`, from what the views show.
  void check_counts() {
    if (testing::Test::HasFailure()) return;
    const KvUse use = pool_.use();
    std::set<std::uint32_t> pages;
    std::uint64_t slots = 0;
    std::uint64_t tokens = 0;
    std::uint64_t tiles = 0;
    const auto global = std::find_if(config_.layers.begin(), config_.layers.end(),
                                     [](const LayerSpec& l) { return l.attention == AttentionKind::global; });
    for (const auto& [id, s] : open_) {
      tokens += s.tokens.size();
      if (global == config_.layers.end()) continue;
      const auto count = static_cast<std::uint32_t>(s.tokens.size());
      const std::uint32_t full = has_tail(false) ? count / kTileTokens : (count + kTileTokens - 1) / kTileTokens;
      tiles += full;
      const KvView view = pool_.view(id, static_cast<std::uint32_t>(global - config_.layers.begin()));
      std::uint32_t held = 0;
      for (std::uint32_t i = 0; i < full; ++i) {
        if (view.table[i] == kNoTile) continue;
        ++held;
        if (!tiered()) pages.insert(view.table[i]);
      }
      if (!evicts()) {
        ASSERT_EQ(held, full) << where();
      }
      ASSERT_LE(held, sizes_.held_pages) << where();
      if (full > 0 && !s.removed) {
        ASSERT_NE(view.table[0], kNoTile) << where();
      }
      tokens -= (full - held) * kTileTokens;
      slots += (held + (has_tail(false) ? 1 : 0)) * kTileTokens;
    }
    ASSERT_EQ(use.tokens, tokens) << where();
    ASSERT_EQ(use.page_slots, slots) << where();
    if (slots > 0) {
      ASSERT_EQ(use.utilisation(), static_cast<double>(tokens) / static_cast<double>(slots)) << where();
    }
    if (!tiered()) {
      ASSERT_EQ(pool_.pages() - pool_.free_pages(), pages.size()) << where();
      return;
    }
    std::uint64_t forms = 0;
    std::uint64_t bytes = 0;
    for (const KvType form : {KvType::q8, KvType::q4, KvType::q2}) {
      const std::uint32_t count = use.tiered_tiles[static_cast<std::size_t>(form)];
      forms += count;
      bytes += count * KvTileLayout::of(form, config_.kv_heads, config_.head_dim).bytes();
    }
    ASSERT_EQ(forms, tiles * sizes_.global_layers) << where();
    ASSERT_LE(bytes, sizes_.tiered_bytes) << where();
  }

  /// `auto`: tiles lie apart and inside the arena; the first page and the latest are q8 as long as nothing was taken
  /// away from the sequence.
  void check_apart() {
    if (!tiered() || testing::Test::HasFailure()) return;
    std::map<std::uint64_t, std::uint64_t> spans;
    for (const auto& [id, s] : open_) {
      for (std::uint32_t layer = 0; layer < layers(); ++layer) {
        const KvView view = pool_.view(id, layer);
        for (std::uint32_t i = 0; !is_local(layer) && i < s.tokens.size() / kTileTokens; ++i) {
          const std::uint64_t at = view.table[i] * view.stride;
          ASSERT_TRUE(spans.emplace(at, view.forms[static_cast<int>(view.types[i])].bytes()).second) << where();
        }
        if (!is_local(layer) && !s.removed && s.tokens.size() >= kTileTokens) {
          ASSERT_EQ(view.types[0], KvType::q8) << where();
          if (s.most == s.tokens.size()) {
            ASSERT_EQ(view.types[view.table_size - 1], KvType::q8) << where();
          }
        }
      }
    }
    std::uint64_t end = 0;
    for (const auto& [at, bytes] : spans) {
      ASSERT_GE(at, end) << where();
      end = at + bytes;
    }
    ASSERT_LE(end, sizes_.tiered_bytes) << where();
  }

  test::Random random_;
  unsigned seed_;
  int step_ = 0;
  bool thorough_ = false;
  ModelConfig config_;
  PlanAsk ask_;
  KvSizes sizes_;
  Budget budget_;
  KvPool pool_;
  std::map<SequenceId, Sequence> open_;
  std::uint32_t next_tag_ = 0;
  std::array<float, kTileTokens * kHeadDim> keys_{};
  std::array<float, kTileTokens * kHeadDim> values_{};
};

struct Policy {
  KvType global;
  KvEviction eviction;
};

class KvTraces : public testing::TestWithParam<Policy> {};

constexpr std::array kPolicies{Policy{KvType::f32, KvEviction::none}, Policy{KvType::bf16, KvEviction::none},
                               Policy{KvType::q8, KvEviction::none},  Policy{KvType::q4, KvEviction::none},
                               Policy{KvType::q2, KvEviction::none},  Policy{KvType::automatic, KvEviction::none},
                               Policy{KvType::bf16, KvEviction::age}, Policy{KvType::q4, KvEviction::age},
                               Policy{KvType::q8, KvEviction::mass},  Policy{KvType::q3, KvEviction::mass}};

TEST_P(KvTraces, ShowWhatWasWrittenAndLoseNoPage) {
  const auto traces = static_cast<unsigned>(kTraces / kPolicies.size());
  for (unsigned seed = 0; seed < traces && !HasFailure(); ++seed) {
    Trace(seed, GetParam().global, GetParam().eviction).run();
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, KvTraces, testing::ValuesIn(kPolicies), [](const auto& info) {
  return fmt::format("{}_{}", name(info.param.global), name(info.param.eviction));
});

}  // namespace
}  // namespace carat
