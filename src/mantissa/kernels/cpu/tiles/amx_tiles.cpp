#include "mantissa/kernels/cpu/tiles/amx_tiles.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace mantissa::kernels {
namespace {

bool detect() {
  constexpr unsigned kAmxBf16 = 1U << 22U, kAmxTile = 1U << 24U;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  // Fails if the system does not save the tiles (Linux before 5.16) or denies them.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool has_amx_tiles() {
  static const bool has = detect();
  return has;
}

}  // namespace mantissa::kernels

#else

namespace mantissa::kernels {

bool has_amx_tiles() {
  return false;
}

}  // namespace mantissa::kernels

#endif
