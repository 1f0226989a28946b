// System calls and the signals that interrupt them.
#include "mantissa/core/disk/file.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace mantissa::disk {
namespace {

/// A call that is interrupted `times` times before it returns 3.
struct Interrupted {
  int times = 0;
  int calls = 0;
  int operator()() {
    errno = EINTR;
    return calls++ < times ? -1 : 3;
  }
};

TEST(Uninterrupted, RepeatsACallThatSignalsInterrupt) {
  Interrupted call{.times = 5};
  EXPECT_EQ(uninterrupted([&] { return call(); }), 3);
  EXPECT_EQ(call.calls, 6);
}

TEST(Uninterrupted, GivesUpACallThatIsAlwaysInterrupted) {
  Interrupted call{.times = 1 << 30};
  EXPECT_EQ(uninterrupted([&] { return call(); }), -1);
  EXPECT_EQ(errno, EINTR);
  EXPECT_EQ(call.calls, kInterruptions + 1);
}

TEST(Uninterrupted, ReturnsOtherErrorsAtOnce) {
  int calls = 0;
  const auto fails = [&] {
    ++calls;
    errno = EIO;
    return -1;
  };
  EXPECT_EQ(uninterrupted(fails), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace mantissa::disk
