#include "base/profile.h"

#include <gtest/gtest.h>

#include <set>

namespace carat::test {
namespace {

using std::chrono::milliseconds;

Profile::Clock::time_point at(int ms) { return Profile::Clock::time_point(milliseconds(1000 + ms)); }

TEST(Profile, ModulesAndPhasesAreKeptApart) {
  Profile profile;
  profile.begin(at(0));
  profile.add_time(ProfileModule::qkv, milliseconds(3));
  profile.add_time(ProfileModule::qkv, milliseconds(4));
  profile.add_bytes(ProfileModule::qkv, 100);
  profile.enter(ProfilePhase::answer, at(20));
  profile.add_time(ProfileModule::ffn, milliseconds(5));
  profile.enter(ProfilePhase::answer, at(25));  // the same phase goes on
  profile.add_bytes(ProfileModule::ffn, 7);
  profile.finish(at(30));

  const Profile::Use& qkv = profile.use(ProfilePhase::prompt, ProfileModule::qkv);
  EXPECT_EQ(qkv.time, milliseconds(7));
  EXPECT_EQ(qkv.calls, 2U);
  EXPECT_EQ(qkv.bytes, 100U);
  EXPECT_EQ(profile.use(ProfilePhase::answer, ProfileModule::qkv).calls, 0U);
  EXPECT_EQ(profile.use(ProfilePhase::answer, ProfileModule::ffn).bytes, 7U);
  EXPECT_EQ(profile.wall(ProfilePhase::prompt), milliseconds(20));
  EXPECT_EQ(profile.wall(ProfilePhase::answer), milliseconds(10));
  EXPECT_EQ(profile.measured(ProfilePhase::prompt), milliseconds(7));
  EXPECT_EQ(profile.measured(ProfilePhase::answer), milliseconds(5));
}

TEST(Profile, BeginForgets) {
  Profile profile;
  profile.begin(at(0));
  profile.enter(ProfilePhase::answer, at(1));
  profile.add_time(ProfileModule::head, milliseconds(1));
  profile.finish(at(2));
  profile.begin(at(5));
  profile.finish(at(9));
  EXPECT_EQ(profile.wall(ProfilePhase::prompt), milliseconds(4));
  EXPECT_EQ(profile.wall(ProfilePhase::answer), milliseconds(0));
  EXPECT_EQ(profile.measured(ProfilePhase::answer), milliseconds(0));
}

TEST(Profile, AClockGivesEachModuleItsStretch) {
  Profile profile;
  profile.begin();
  {
    ProfileClock clock(&profile, ProfileModule::norms);
    clock.next(ProfileModule::qkv);
    clock.next(ProfileModule::norms);
  }
  {
    ProfileClock clock(&profile, ProfileModule::head);
    clock.stop();  // the end of the scope adds nothing more
  }
  profile.finish();
  EXPECT_EQ(profile.use(ProfilePhase::prompt, ProfileModule::norms).calls, 2U);
  EXPECT_EQ(profile.use(ProfilePhase::prompt, ProfileModule::qkv).calls, 1U);
  EXPECT_EQ(profile.use(ProfilePhase::prompt, ProfileModule::head).calls, 1U);
  EXPECT_LE(profile.measured(ProfilePhase::prompt), profile.wall(ProfilePhase::prompt));
}

TEST(Profile, WithoutAProfileAClockDoesNothing) {
  ProfileClock clock(nullptr, ProfileModule::norms);
  clock.next(ProfileModule::qkv);
  clock.stop();
}

TEST(Profile, EveryModuleHasAName) {
  std::set<std::string_view> names;
  for (int i = 0; i < kProfileModuleCount; ++i) names.insert(name(static_cast<ProfileModule>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kProfileModuleCount));
  EXPECT_FALSE(names.contains(""));
}

}  // namespace
}  // namespace carat::test
