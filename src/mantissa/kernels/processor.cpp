#include "mantissa/kernels/processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "mantissa/kernels/units.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace mantissa::kernels {
namespace {

constexpr std::string_view kOtherSums =
    "adds products in pairs and drops subnormals: its bits differ from chains of f32 multiply-adds and from "
    "machines without it";
constexpr std::string_view kHalfTiles = "products of f16 are added in chains, not in the order of tiles";
constexpr std::string_view kWhole = "multiplies integers, which no policy uses";

#if defined(__x86_64__)

struct Registers {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};

/// Returns zeros if the processor lacks the leaf.
Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

/// Returns the register files that the system saves between threads (XCR0); 0 if it saves none of the wide
/// ones.
std::uint64_t saved_registers() {
  constexpr std::uint32_t kOsxsave = 1U << 27U;
  if ((cpuid(1, 0).c & kOsxsave) == 0) return 0;
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32U) | low;
}

bool bit(std::uint32_t word, unsigned at) {
  return ((word >> at) & 1U) != 0;
}

#endif

}  // namespace

std::string_view name(How how) {
  switch (how) {
    case How::native:
      return "native";
    case How::converted:
      return "converted";
    case How::simulated:
      return "simulated";
  }
  return "?";
}

FormatSupport format_support(std::string_view format, Simd simd) {
  static constexpr std::string_view kWiden = "16 bits in memory, widened exactly on load";
  static constexpr std::string_view kSoftware = "rounded in software";
  static constexpr std::string_view kBlocks = "element × scale of its block";
  struct Row {
    std::string_view format;
    How how;
    Factor factor;
    std::string_view text;
    std::string_view count = {};  // of products of parts
  };
  static constexpr std::array kTable = {
      Row{"f64", How::native, Scalar::f64, ""},
      Row{"f32", How::native, Scalar::f32, ""},
      Row{"tf32", How::simulated, Scalar::tf32, "stored as f32, operands rounded to 10 bits during packing"},
      Row{"bf16", How::converted, Scalar::bf16, kWiden},
      Row{"f16", How::converted, Scalar::f16, kWiden},
      Row{"e5m2", How::simulated, Scalar::e5m2, kSoftware},
      Row{"e4m3", How::simulated, Scalar::e4m3, kSoftware},
      Row{"mxfp8", How::simulated, Scalar::bf16, kBlocks},
      Row{"mxfp8-e5m2", How::simulated, Scalar::bf16, kBlocks},
      Row{"mxfp6-e2m3", How::simulated, Scalar::bf16, kBlocks},
      Row{"mxfp6-e3m2", How::simulated, Scalar::bf16, kBlocks},
      Row{"mxfp4", How::simulated, Scalar::bf16, kBlocks},
      Row{"nvfp4", How::simulated, Scalar::bf16, kBlocks},
      Row{"bf16x3", How::simulated, {Scalar::bf16, 2}, "two bf16 parts of each operand", "three "},
      Row{"bf16x6", How::simulated, {Scalar::bf16, 3}, "three bf16 parts of each operand", "six "},
  };
  const auto* found = std::ranges::find(kTable, format, &Row::format);
  Row row = found != kTable.end()
                ? *found
                : Row{format, How::simulated, Scalar::f32, "f32 operands rounded to its values"};
  const Scalar arithmetic = row.factor.format == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  const Unit& u = unit_of(
      simd, {arithmetic, row.factor, row.factor, {Scalar::f32, 0, usual_order(row.factor, row.factor)}});
  if (u.native == row.factor.format && row.how == How::converted) {
    row.how = u.id == UnitId::tile_model ? How::simulated : How::native;
    row.text = "16 bits in memory";
  }
  if (row.text.empty()) return {format, row.how, u.name, "multiplied and added in " + std::string(format)};
  return {format, row.how, u.name,
          fmt::format("{}, {}{} products by {}", row.text, row.count, name(u.native), u.name)};
}

#if defined(__x86_64__)

std::vector<ProcessorFeature> processor_features(Simd simd) {
  const Registers basic = cpuid(1, 0), wide = cpuid(7, 0), more = cpuid(7, 1);
  const std::uint64_t saved = saved_registers();
  const bool ymm = (saved & 0x6U) == 0x6U;
  const bool zmm = (saved & 0xe6U) == 0xe6U;
  const bool tiles = (saved & 0x60000U) == 0x60000U;
  const bool avx512 = simd_target(simd) == simd_target(Simd::avx512);
  const bool pairs = simd == Simd::avx512_bf16, amx = simd == Simd::amx;
  return {
      {"avx2", ymm && bit(wide.b, 5), !avx512, avx512 ? "avx512 is wider" : "f32 and f64 arithmetic"},
      {"fma", ymm && bit(basic.c, 12), true, "every product: one rounding per multiply-add"},
      {"f16c", ymm && bit(basic.c, 29), true, "f16 to f32 and back, rounded to nearest"},
      {"avx512f", zmm && bit(wide.b, 16), avx512,
       avx512 ? "f32 and f64 arithmetic"
       : !is_compiled(Simd::avx512)
           ? "this build has no code for it: build it on this machine, or with "
             "cmake -DMANTISSA_NATIVE=OFF"
           : "--simd selects a smaller set, or the system does not save its registers"},
      {"avx512_bf16", zmm && bit(more.a, 5), pairs, why(unit(UnitId::vdpbf16ps), simd)},
      {"avx512_fp16", zmm && bit(wide.d, 23), false,
       "sums in f16 would round every product; f16 is widened to f32 instead"},
      {"avx512_vnni", zmm && bit(wide.c, 11), false, kWhole},
      {"amx_bf16", tiles && bit(wide.d, 22), amx, why(unit(UnitId::tdpbf16ps), simd)},
      {"amx_fp16", tiles && bit(more.a, 21), false, kHalfTiles},
      {"amx_int8", tiles && bit(wide.d, 25), false, kWhole},
  };
}

std::string processor_name() {
  std::array<char, 49> brand{};  // 48 characters and a terminator
  for (std::uint32_t part = 0; part < 3; ++part) {
    const Registers r = cpuid(0x80000002U + part, 0);
    std::memcpy(brand.data() + 16 * part, &r, sizeof r);
  }
  std::string name(brand.data());
  name.erase(0, name.find_first_not_of(' ') == std::string::npos ? name.size() : name.find_first_not_of(' '));
  while (name.ends_with(' ')) name.pop_back();
  return name.empty() ? "x86-64" : name;
}

#elif defined(__aarch64__)

std::vector<ProcessorFeature> processor_features(Simd) {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {
      {"neon", (first & HWCAP_ASIMD) != 0, true, "f32 and f64 arithmetic, f16 to f32 and back"},
      {"fp16", (first & HWCAP_ASIMDHP) != 0, false,
       "sums in f16 would round every product; f16 is widened to f32 instead"},
      {"bf16", (second & HWCAP2_BF16) != 0, false, kOtherSums},
      {"i8mm", (second & HWCAP2_I8MM) != 0, false, kWhole},
      {"sve", (first & HWCAP_SVE) != 0, false, "kernels keep arrays of vectors, which need a fixed size"},
  };
}

std::string processor_name() {
  return "arm64";
}

#else

std::vector<ProcessorFeature> processor_features(Simd) {
  return {};
}

std::string processor_name() {
  return "unknown";
}

#endif

}  // namespace mantissa::kernels
