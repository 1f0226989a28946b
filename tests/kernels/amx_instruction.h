// Decodes the tile instructions of AMX that cpu/amx_tiles.h uses, from their encodings in Intel's manual (SDM
// volume 2): a VEX prefix of three bytes (C4), the opcode, ModRM, and for memory SIB and displacement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mantissa::kernels::testing::amx {

enum class Operation : std::uint8_t {
  configure,    // LDTILECFG    NP 49 /0, memory
  release,      // TILERELEASE  NP 49 C0
  zero,         // TILEZERO     F2 49, register
  load,         // TILELOADD    F2 4B, TILELOADDT1 66 4B, memory with SIB
  store,        // TILESTORED   F3 4B, memory with SIB
  multiply_add  // TDPBF16PS    F3 5C, registers
};

/// The general registers by number: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
struct Registers {
  std::uint64_t at[16];
};

struct Instruction {
  Operation operation = Operation::release;
  std::size_t length = 0;             // bytes
  unsigned tile = 0;                  // the destination, or the source of a store
  unsigned left = 0, right = 0;       // the tiles of A and B
  std::uint64_t base = 0, index = 0;  // the address without the index, and the scaled index
};

/// An instruction, or the reason why it raises #UD or is unknown to the emulator.
struct Decoded {
  Instruction instruction;
  const char* fault = nullptr;
};

/// Returns true if the bytes at `code` are an instruction of AMX, known to decode() or not. Reads no byte
/// beyond the instruction.
inline bool is_tile_instruction(const std::uint8_t* code) {
  if (code[0] != 0xc4 || (code[1] & 0x1fU) != 2) return false;  // map 0F 38
  switch (code[3]) {
    case 0x49:
    case 0x4b:
    case 0x5c:
    case 0x5e:
    case 0x6c:
      return true;
    default:
      return false;
  }
}

/// Reads the memory operand at `modrm` to base and index, and adds its bytes after ModRM to the length.
inline void decode_memory(const std::uint8_t* code, const Registers& registers, Instruction& to) {
  constexpr std::uint8_t kNoIndex = 4, kNoBase = 5, kHasSib = 4, kOfProgram = 5;
  const std::uint8_t* at = code + to.length;  // after ModRM
  const unsigned high_index = (code[1] & 0x40U) != 0 ? 0 : 8, high_base = (code[1] & 0x20U) != 0 ? 0 : 8;
  const unsigned mode = at[-1] >> 6U, low = at[-1] & 7U;
  bool wide = mode == 2, relative = false;
  if (low == kHasSib) {
    const unsigned sib = *at++;
    const unsigned index = (sib >> 3U & 7U) | high_index, base = sib & 7U;
    if (index != kNoIndex) to.index = registers.at[index] << (sib >> 6U);
    if (base == kNoBase && mode == 0) {
      wide = true;
    } else {
      to.base = registers.at[base | high_base];
    }
  } else if (low == kOfProgram && mode == 0) {
    wide = relative = true;
  } else {
    to.base = registers.at[low | high_base];
  }
  std::int64_t displacement = 0;
  if (wide) {
    std::int32_t of_four_bytes = 0;
    std::memcpy(&of_four_bytes, at, sizeof of_four_bytes);
    displacement = of_four_bytes;
    at += sizeof of_four_bytes;
  } else if (mode == 1) {
    displacement = static_cast<std::int8_t>(*at++);
  }
  to.base += static_cast<std::uint64_t>(displacement);
  to.length = static_cast<std::size_t>(at - code);
  if (relative) to.base += reinterpret_cast<std::uintptr_t>(at);  // counted from the next instruction
}

/// Decodes a tile instruction.
inline Decoded decode(const std::uint8_t* code, const Registers& registers) {
  enum Prefix : std::uint8_t { none = 0, of_66 = 1, of_f3 = 2, of_f2 = 3 };
  const unsigned prefix = code[2] & 3U, opcode = code[3], modrm = code[4];
  const unsigned third = ~unsigned{code[2]} >> 3U & 15U;  // VEX.vvvv
  const bool memory = modrm >> 6U != 3, sib = memory && (modrm & 7U) == 4;
  const bool high_register = (code[1] & 0x80U) == 0, high_operand = !memory && (code[1] & 0x20U) == 0;
  if ((code[2] & 0x84U) != 0) return {{}, "VEX.W or VEX.L is set (#UD)"};
  if (high_register || high_operand || third > 7) return {{}, "a tile's number is above 7 (#UD)"};
  Instruction to;
  to.length = 5;
  to.tile = modrm >> 3U & 7U;
  to.left = modrm & 7U;
  to.right = third;
  if (opcode == 0x5c && prefix == of_f3 && !memory) {
    to.operation = Operation::multiply_add;
    return {to};
  }
  if (third != 0) return {{}, "VEX.vvvv is not 1111b (#UD)"};
  if (opcode == 0x49 && prefix == none && modrm == 0xc0) {
    to.operation = Operation::release;
    return {to};
  }
  if (opcode == 0x49 && prefix == of_f2 && !memory && to.left == 0) {
    to.operation = Operation::zero;
    return {to};
  }
  if (opcode == 0x49 && prefix == none && memory && to.tile == 0) {
    to.operation = Operation::configure;
    decode_memory(code, registers, to);
    return {to};
  }
  if (opcode == 0x4b && prefix != none && memory) {
    if (!sib) return {{}, "a tile's memory operand has no SIB byte (#UD)"};
    to.operation = prefix == of_f3 ? Operation::store : Operation::load;
    decode_memory(code, registers, to);
    return {to};
  }
  return {{}, "the emulator does not know this instruction"};
}

}  // namespace mantissa::kernels::testing::amx
