#include "mantissa/core/numeric/format.h"

#include <cmath>
#include <string>

namespace mantissa {
namespace {

struct Spelling {
  std::string_view text;
  Scalar scalar;
};

constexpr Spelling kSpellings[] = {
    {"fp64", Scalar::f64},           {"float64", Scalar::f64},        {"double", Scalar::f64},
    {"fp32", Scalar::f32},           {"float32", Scalar::f32},        {"float", Scalar::f32},
    {"single", Scalar::f32},         {"tensorfloat32", Scalar::tf32}, {"bfloat16", Scalar::bf16},
    {"fp16", Scalar::f16},           {"float16", Scalar::f16},        {"half", Scalar::f16},
    {"float8_e5m2", Scalar::e5m2},   {"fp8_e5m2", Scalar::e5m2},      {"f8_e5m2", Scalar::e5m2},
    {"float8_e4m3fn", Scalar::e4m3}, {"fp8_e4m3fn", Scalar::e4m3},    {"f8_e4m3fn", Scalar::e4m3},
    {"fp8_e4m3", Scalar::e4m3},      {"f8_e4m3", Scalar::e4m3},       {"e4m3fn", Scalar::e4m3},
};

// Module prefixes that are ignored: "torch.bfloat16" reads as "bfloat16".
constexpr std::string_view kModules[] = {"torch.", "jnp.",       "jax.numpy.", "np.",
                                         "numpy.", "ml_dtypes.", "tf."};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

std::optional<Scalar> parse_scalar(std::string_view text) {
  const std::string folded = lower(text);
  std::string_view word = folded;
  for (const std::string_view module : kModules) {
    if (word.starts_with(module)) {
      word.remove_prefix(module.size());
      break;
    }
  }
  for (const Scalar s : kScalars) {
    if (word == name(s)) return s;
  }
  for (const Spelling& spelling : kSpellings) {
    if (word == spelling.text) return spelling.scalar;
  }
  return std::nullopt;
}

double unit_roundoff(Scalar s) {
  return std::ldexp(1.0, -(traits(s).mantissa_bits + 1));
}

}  // namespace mantissa
