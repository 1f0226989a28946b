#include "kernels/amx_emulator.h"

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/tiles/amx_tiles.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels/amx_instruction.h"
#include "kernels/amx_machine.h"

namespace mantissa::kernels::testing {
namespace {

constinit thread_local amx::Machine machine;
constinit std::atomic<std::int64_t> products = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // used by the handler
constinit struct sigaction previous = {};

[[noreturn]] void stop(const char* fault) {
  for (const char* text : {"AMX emulator: ", fault, "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  std::abort();
}

/// Executes the tile instruction at which the thread stopped, and those that follow it without another
/// between them: a stop costs as much as several of them. The system saves and restores the thread's vector
/// registers, and gives the handler the default rounding. Allocates nothing.
void execute(int /*signal*/, siginfo_t* /*info*/, void* context) {
  constexpr int kNames[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  auto& saved = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* code = reinterpret_cast<const std::uint8_t*>(saved[REG_RIP]);
  if (!amx::is_tile_instruction(code)) {
    sigaction(SIGILL, &previous, nullptr);  // the instruction runs again, and the previous handler is called
    return;
  }
  amx::Registers registers;
  for (std::size_t i = 0; i < 16; ++i) registers.at[i] = static_cast<std::uint64_t>(saved[kNames[i]]);
  do {
    const amx::Decoded decoded = amx::decode(code, registers);
    if (decoded.fault != nullptr) stop(decoded.fault);
    if (const char* fault = machine.execute(decoded.instruction)) stop(fault);
    if (decoded.instruction.operation == amx::Operation::multiply_add) ++products;
    code += decoded.instruction.length;
  } while (amx::is_tile_instruction(code));
  saved[REG_RIP] = reinterpret_cast<greg_t>(code);
}

/// Returns true if the processor has tiles, even if the system denies them.
bool processor_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24U & 1U) != 0;
}

TileHardware find_or_install() {
  if (has_amx_tiles()) return TileHardware::processor;
  if (processor_has_tiles() || !is_supported(Simd::avx512)) return TileHardware::none;
  struct sigaction action = {};
  action.sa_sigaction = &execute;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGILL, &action, &previous) == 0 ? TileHardware::emulator : TileHardware::none;
}

}  // namespace

TileHardware tile_hardware() {
  static const TileHardware hardware = find_or_install();
  return hardware;
}

std::int64_t emulated_products() {
  return products;
}

}  // namespace mantissa::kernels::testing

#else

namespace mantissa::kernels::testing {

TileHardware tile_hardware() {
  return TileHardware::none;
}

std::int64_t emulated_products() {
  return 0;
}

}  // namespace mantissa::kernels::testing

#endif
