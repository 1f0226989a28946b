// Runs the tile instructions of AMX (cpu/amx_tiles.h) on processors without them: a handler of SIGILL decodes
// each one, executes it on tiles of the calling thread, and continues after it. So tests execute the assembly
// of kernels, its encodings and its operands, although not the processor's own tiles. Slow: about a
// microsecond per instruction, and tens for a product.
//
// An instruction at which the processor would raise an exception ends the program with a message.
#pragma once

#include <cstdint>

namespace mantissa::kernels::testing {

/// What executes tile instructions in this process.
enum class TileHardware : std::uint8_t { processor, emulator, none };

/// Returns it. The first call installs the emulator if the processor has no AMX but AVX-512, which kernels
/// with tiles use too, and the system is Linux.
TileHardware tile_hardware();

/// Returns how many products of tiles (TDPBF16PS) the emulator has executed on all threads.
std::int64_t emulated_products();

}  // namespace mantissa::kernels::testing
