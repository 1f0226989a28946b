// The memory with which a request ends when the rest is used up.
#include "mantissa/app/serve/memory_reserve.h"

#include <gtest/gtest.h>

#include <limits>
#include <new>

namespace mantissa::serve {
namespace {

TEST(MemoryReserve, IsFreedByAnAllocationThatFailsAndTakenAgain) {
  {
    const MemoryReserve reserve;
    EXPECT_TRUE(MemoryReserve::is_full());
    const volatile std::size_t most = std::numeric_limits<std::size_t>::max() / 4;
    EXPECT_THROW(::operator delete(::operator new(most)), std::bad_alloc);
    EXPECT_FALSE(MemoryReserve::is_full());
    EXPECT_THROW(::operator delete(::operator new(most)), std::bad_alloc) << "also without a reserve";
    MemoryReserve::refill();
    EXPECT_TRUE(MemoryReserve::is_full());
  }
  EXPECT_FALSE(MemoryReserve::is_full());
  EXPECT_EQ(std::get_new_handler(), nullptr);
}

}  // namespace
}  // namespace mantissa::serve
