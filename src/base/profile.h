// Where the time of a request goes: an accumulator by module and phase that is passed down by pointer. A null pointer
// means nobody asked, and then a clock costs one test.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carat {

/// What a request's time is divided among, in the order in which a token passes.
enum class ProfileModule : std::uint8_t {
  tokenizer,
  embed,
  weights,  ///< waiting for a layer that is read from a file
  norms,    ///< norms and residual sums of the stream
  qkv,
  rope_store,  ///< rotary angles, q/k norms, rotation, storing keys and values
  attention_local,
  attention_global,
  attention_out,
  ffn,
  head,
  sampling,
  output,  ///< tokens to text, stop strings, writing
};
inline constexpr int kProfileModuleCount = 13;
/// "tokenizer", "attention_local", …
std::string_view name(ProfileModule module);

/// Reading the prompt up to the first token, and making the tokens after it.
enum class ProfilePhase : std::uint8_t { prompt, answer };
inline constexpr int kProfilePhaseCount = 2;
std::string_view name(ProfilePhase phase);

/// Not thread-safe: the thread that drives the engine owns it.
class Profile {
 public:
  using Clock = std::chrono::steady_clock;
  struct Use {
    Clock::duration time{};
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;  ///< read, counted from shapes; of rope_store the keys and values written
  };

  /// Forgets everything; the prompt phase starts.
  void begin(Clock::time_point now = Clock::now());
  /// What follows belongs to `phase`.
  void enter(ProfilePhase phase, Clock::time_point now = Clock::now());
  /// The phase entered last ends; what follows is not counted in its wall time.
  void finish(Clock::time_point now = Clock::now());

  void add_time(ProfileModule module, Clock::duration time) {
    Use& use = current(module);
    use.time += time;
    ++use.calls;
  }
  void add_bytes(ProfileModule module, std::uint64_t bytes) { current(module).bytes += bytes; }

  const Use& use(ProfilePhase phase, ProfileModule module) const {
    return uses_[static_cast<std::size_t>(phase)][static_cast<std::size_t>(module)];
  }
  /// Of the phase, modules or not.
  Clock::duration wall(ProfilePhase phase) const { return walls_[static_cast<std::size_t>(phase)]; }
  /// The sum of its modules.
  Clock::duration measured(ProfilePhase phase) const;

 private:
  Use& current(ProfileModule module) {
    return uses_[static_cast<std::size_t>(phase_)][static_cast<std::size_t>(module)];
  }

  std::array<std::array<Use, kProfileModuleCount>, kProfilePhaseCount> uses_{};
  std::array<Clock::duration, kProfilePhaseCount> walls_{};
  ProfilePhase phase_ = ProfilePhase::prompt;
  Clock::time_point entered_{};
};

/// Gives the time from here to next(), stop() or the end of the scope to a module. Clocks that run at once would count
/// the same time twice: none is nested.
class ProfileClock {
 public:
  ProfileClock(Profile* profile, ProfileModule module) : profile_(profile), module_(module) {
    if (profile_ != nullptr) since_ = Profile::Clock::now();
  }
  ~ProfileClock() { stop(); }
  ProfileClock(const ProfileClock&) = delete;
  ProfileClock& operator=(const ProfileClock&) = delete;

  /// The module so far ends and `module` begins, at one reading of the clock.
  void next(ProfileModule module) {
    if (profile_ == nullptr) return;
    const Profile::Clock::time_point now = Profile::Clock::now();
    profile_->add_time(module_, now - since_);
    module_ = module;
    since_ = now;
  }
  void stop() {
    if (profile_ != nullptr) profile_->add_time(module_, Profile::Clock::now() - since_);
    profile_ = nullptr;
  }

 private:
  Profile* profile_;
  ProfileModule module_;
  Profile::Clock::time_point since_{};
};

}  // namespace carat
