// The units that multiply and add: one row each, and the choice of the unit of a product.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "mantissa/core/numeric/product.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

enum class UnitId : std::uint8_t { fma, vdpbf16ps, tdpbf16ps, tile_model };

/// The kernel of a product.
enum class ProductKernel : std::uint8_t {
  packed,       // gemm(): both operands are packed into panels
  strips,       // gemm() with few rows: B is read in place and not packed
  thin,         // the same with so few rows that reading B takes the time
  thin_blocks,  // the same with B in quantized blocks, whose decoding takes the time
  attention,    // products of attention with operands in one part and many rows
  in_place,     // other products of attention
};

/// Sets of enumerators, as bits.
template <class E>
struct EnumSet {
  std::uint32_t bits = 0;
  constexpr EnumSet(std::initializer_list<E> all) {
    for (const E e : all) bits |= std::uint32_t{1} << static_cast<unsigned>(e);
  }
  constexpr bool has(E e) const { return (bits >> static_cast<unsigned>(e) & 1U) != 0; }
};

/// An instruction that multiplies and adds. All units of a product give the same bits.
struct Unit {
  UnitId id;
  std::string_view name;           // of the instruction; "FMA" for the fused multiply-adds of any set
  std::string_view extension;      // the processor's name for it, or "" if every set has it
  EnumSet<Simd> sets;              // the sets whose kernels use it
  EnumSet<ProductKernel> kernels;  // the kernels that use it
  bool (*takes)(const Product&);   // true for the products that it computes
  std::string_view factors;        // these products, in words
  Scalar native;                   // the format that it multiplies
  std::string_view packing;        // how operands lie in panels
  std::string_view accumulator;    // the format of its sums
  std::string_view why;            // the reason to use it
};

/// Returns all units, from general to special.
std::span<const Unit> units();
const Unit& unit(UnitId id);

/// Returns the unit that computes `product` in `kernel`: the most special one of the set. gemm() uses fused
/// multiply-adds instead for the panels whose sums could be subnormal in a unit that drops subnormals, and
/// for products with fewer than sixteen terms in a row, for which packing can exceed the workspace.
const Unit& unit_of(Simd simd, const Product& product, ProductKernel kernel = ProductKernel::packed);

/// Returns true if this machine can run the unit.
bool is_present(const Unit& unit);

/// Returns the reason why the kernels of `simd` use the unit or not.
std::string_view why(const Unit& unit, Simd simd);

/// The most rows of products that do not pack B, and the fewest of those whose multiplications take longer
/// than reading B.
inline constexpr std::int64_t kThinRows = 64, kStripRows = 8;

/// Returns the kernel of gemm() for a product with `rows` rows. `in_place` means that the rows of A and the
/// columns of B are contiguous, and that C is not added to; `blocks`, that B is in a quantized format with
/// scales in its blocks.
constexpr ProductKernel kernel_of(const Product& p, std::int64_t rows, bool in_place, bool blocks) {
  if (rows > kThinRows || !in_place || p.a.parts > 1 || p.accumulator.rounds() ||
      p.accumulator.order == SumOrder::card)
    return ProductKernel::packed;
  if (rows >= kStripRows) return ProductKernel::strips;
  return blocks ? ProductKernel::thin_blocks : ProductKernel::thin;
}

/// The fewest rows, queries times the heads of a group, that repay a conversion of keys and values.
inline constexpr std::int64_t kAttentionRows = 64;

/// Returns the kernel of a product of attention.
constexpr ProductKernel attention_kernel(const Product& p, std::int64_t rows) {
  return rows >= kAttentionRows && p.a.parts == 1 ? ProductKernel::attention : ProductKernel::in_place;
}

}  // namespace mantissa::kernels
