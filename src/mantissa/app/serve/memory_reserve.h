// Memory that is free when the rest is used up, so that a request can end: the destructors of some libraries
// allocate, and an exception there would end the program.
#pragma once

namespace mantissa::serve {

/// While an object exists, an allocation by `new` that fails frees a part of the reserve and is tried again;
/// if it fails then, the rest is freed before it throws std::bad_alloc. One object at a time.
class MemoryReserve {
 public:
  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  /// Takes the reserve again, if it was freed and there is memory for it. Any thread may call it.
  static void refill();
  /// Returns true unless the reserve was freed.
  static bool is_full();
};

}  // namespace mantissa::serve
