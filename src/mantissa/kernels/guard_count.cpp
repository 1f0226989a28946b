#include "mantissa/kernels/guard_count.h"

#include <atomic>

namespace mantissa::kernels {
namespace {

std::atomic<std::uint64_t> fast_products = 0, slow_products = 0;

}  // namespace

GuardCount guard_count() {
  return {fast_products.load(std::memory_order_relaxed), slow_products.load(std::memory_order_relaxed)};
}

GuardTask::~GuardTask() {
  if (count_.fast > 0) fast_products.fetch_add(count_.fast, std::memory_order_relaxed);
  if (count_.slow > 0) slow_products.fetch_add(count_.slow, std::memory_order_relaxed);
}

}  // namespace mantissa::kernels
