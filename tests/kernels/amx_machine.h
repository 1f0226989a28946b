// The tiles of one thread, and what the tile instructions of AMX do to them, as Intel's manual states it (SDM
// volume 2): palette 1, tiles of up to 16 rows of 64 bytes. An instruction that the processor would answer
// with an exception returns the reason. A restarted instruction (start_row) is not emulated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/amx_arithmetic.h"
#include "kernels/amx_instruction.h"
#include "kernels/amx_row.h"

namespace mantissa::kernels::testing::amx {

class Machine {
 public:
  /// Executes the instruction. Returns null, or the reason of the exception, with unchanged tiles.
  const char* execute(const Instruction& i) {
    switch (i.operation) {
      case Operation::configure:
        return configure(i.base + i.index);
      case Operation::release:
        *this = {};
        return nullptr;
      case Operation::zero:
        return zero(i.tile);
      case Operation::load:
        return load(i);
      case Operation::store:
        return store(i);
      case Operation::multiply_add:
        return multiply_add(tiles_[i.tile], tiles_[i.left], tiles_[i.right]);
    }
    return "unknown operation";
  }

 private:
  static constexpr unsigned kTiles = 8, kMostRows = 16, kMostBytes = 64;
  static constexpr const char* kNotConfigured = "tiles are not configured (#UD)";

  struct Tile {
    unsigned rows = 0, row_bytes = 0;
    std::uint8_t data[kMostRows][kMostBytes] = {};

    bool valid() const { return rows != 0; }
    bool has_words() const { return row_bytes % 4 == 0; }
    unsigned words() const { return row_bytes / 4; }
    std::uint32_t word(unsigned row, unsigned column) const {
      std::uint32_t word = 0;
      std::memcpy(&word, data[row] + std::size_t{4} * column, sizeof word);
      return word;
    }
    void set_word(unsigned row, unsigned column, std::uint32_t word) {
      std::memcpy(data[row] + std::size_t{4} * column, &word, sizeof word);
    }
    void clear() { std::memset(data, 0, sizeof data); }
  };

  const char* configure(std::uint64_t address) {
    std::uint8_t from[64];
    std::memcpy(from, reinterpret_cast<const void*>(address), sizeof from);
    const auto row_bytes = [&](unsigned t) { return from[16 + 2 * t] + 256U * from[17 + 2 * t]; };
    const auto rows = [&](unsigned t) { return unsigned{from[48 + t]}; };
    if (from[0] == 0) {
      *this = {};
      return nullptr;
    }
    if (from[0] != 1) return "unknown palette (#GP)";
    if (from[1] != 0) return "the emulator cannot start at another row";
    for (unsigned i = 2; i < 16; ++i) {
      if (from[i] != 0) return "a reserved byte of the configuration is set (#GP)";
    }
    for (unsigned t = 0; t < 16; ++t) {
      if (t >= kTiles && (row_bytes(t) != 0 || rows(t) != 0)) return "a tile above 7 has a size (#GP)";
      if (row_bytes(t) > kMostBytes) return "a row of a tile has more than 64 bytes (#GP)";
      if (rows(t) > kMostRows) return "a tile has more than 16 rows (#GP)";
      if ((rows(t) == 0) != (row_bytes(t) == 0))
        return "a tile has rows without bytes, or bytes without rows (#GP)";
    }
    for (unsigned t = 0; t < kTiles; ++t) {
      tiles_[t].rows = rows(t);
      tiles_[t].row_bytes = row_bytes(t);
      tiles_[t].clear();
    }
    configured_ = true;
    return nullptr;
  }

  const char* zero(unsigned tile) {
    if (!configured_) return kNotConfigured;
    if (!tiles_[tile].valid()) return "the tile has no size (#UD)";
    tiles_[tile].clear();
    return nullptr;
  }

  const char* check_transfer(const Tile& tile) const {
    if (!configured_) return kNotConfigured;
    if (!tile.valid()) return "the tile has no size (#UD)";
    return tile.has_words() ? nullptr : "a row of the tile is not a number of words (#UD)";
  }

  const char* load(const Instruction& i) {
    Tile& tile = tiles_[i.tile];
    if (const char* fault = check_transfer(tile)) return fault;
    tile.clear();
    for (unsigned r = 0; r < tile.rows; ++r)
      std::memcpy(tile.data[r], reinterpret_cast<const void*>(i.base + r * i.index), tile.row_bytes);
    return nullptr;
  }

  const char* store(const Instruction& i) const {
    const Tile& tile = tiles_[i.tile];
    if (const char* fault = check_transfer(tile)) return fault;
    for (unsigned r = 0; r < tile.rows; ++r)
      std::memcpy(reinterpret_cast<void*>(i.base + r * i.index), tile.data[r], tile.row_bytes);
    return nullptr;
  }

  const char* multiply_add(Tile& c, const Tile& a, const Tile& b) const {
    if (!configured_) return kNotConfigured;
    if (&c == &a || &c == &b || &a == &b) return "two of the three tiles are one (#UD)";
    for (const Tile* tile : {&std::as_const(c), &a, &b}) {
      if (!tile->valid()) return "a tile has no size (#UD)";
      if (!tile->has_words()) return "a row of a tile is not a number of words (#UD)";
    }
    if (c.rows != a.rows || c.row_bytes != b.row_bytes || a.words() != b.rows)
      return "the sizes of the tiles do not match (#UD)";
    static const bool rows = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    if (!rows || !multiply_add_rows(c, a, b)) multiply_add_words(c, a, b);
    return nullptr;
  }

  /// The product, number by number.
  static void multiply_add_words(Tile& c, const Tile& a, const Tile& b) {
    for (unsigned m = 0; m < c.rows; ++m) {
      std::uint32_t even[kMostRows] = {}, odd[kMostRows] = {};  // +0 for each column
      for (unsigned k = 0; k < a.words(); ++k) {
        const std::uint32_t x = a.word(m, k);
        for (unsigned n = 0; n < c.words(); ++n) {
          const std::uint32_t y = b.word(k, n);
          even[n] = amx::multiply_add(x << 16U, y << 16U, even[n]);
          odd[n] = amx::multiply_add(x & 0xffff0000U, y & 0xffff0000U, odd[n]);
        }
      }
      for (unsigned n = 0; n < c.words(); ++n) c.set_word(m, n, add(c.word(m, n), add(even[n], odd[n])));
    }
  }

  /// The same for whole rows. Returns false if a number is beyond their range.
  __attribute__((target("avx512f,avx512dq"))) static bool multiply_add_rows(Tile& c, const Tile& a,
                                                                            const Tile& b) {
    Row even_of_b[kMostRows], odd_of_b[kMostRows];
    for (const Tile* tile : {&std::as_const(c), &a, &b}) {
      const unsigned halves = tile == &c ? 1 : 2;
      for (unsigned r = 0; r < tile->rows; ++r) {
        for (unsigned n = 0; n < tile->words(); ++n) {
          const std::uint32_t x = tile->word(r, n);
          if (!is_moderate(x) || (halves == 2 && !is_moderate(x << 16U))) return false;
        }
      }
    }
    for (unsigned k = 0; k < b.rows; ++k) {
      for (unsigned n = 0; n < b.words(); ++n) {
        even_of_b[k].set(n, b.word(k, n) << 16U);
        odd_of_b[k].set(n, b.word(k, n) & 0xffff0000U);
      }
    }
    for (unsigned m = 0; m < c.rows; ++m) {
      Row even, odd, sum;  // of +0
      for (unsigned k = 0; k < a.words(); ++k) {
        const std::uint32_t x = a.word(m, k);
        even.add(operand(x << 16U), even_of_b[k]);
        odd.add(operand(x & 0xffff0000U), odd_of_b[k]);
      }
      for (unsigned n = 0; n < c.words(); ++n) sum.set(n, c.word(m, n));
      even.add(1, odd);
      sum.add(1, even);
      for (unsigned n = 0; n < c.words(); ++n) c.set_word(m, n, sum.word(n));
    }
    return true;
  }

  bool configured_ = false;
  Tile tiles_[kTiles];
};

}  // namespace mantissa::kernels::testing::amx
