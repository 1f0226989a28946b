#include "mantissa/convert/survey.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "mantissa/numeric/convert.h"

namespace mantissa::convert {
namespace {

constexpr std::uint64_t kPiece = std::uint64_t{1} << 18;  // elements that one thread takes at a time
constexpr std::uint64_t kRow = std::uint64_t{1} << 12;    // of which so many are in the cache at once

struct Buffers {
  std::vector<std::byte> stored;
  std::vector<float> before, after;
  std::vector<double> wide_before, wide_after;
};

template <class T>
void look(const std::byte* stored, Scalar type, std::uint64_t count, SimdTarget target,
          std::vector<T>& before, std::vector<T>& after, Survey& seen) {
  before.resize(kRow);
  for (std::uint64_t at = 0; at < count; at += kRow) {
    const std::uint64_t n = std::min(kRow, count - at);
    load_row(stored, type, at, n, before.data(), target);
    seen.values.add_row(before.data(), n, target);
    for (std::size_t f = 0; f < kSurveyed.size(); ++f) {
      after.assign(before.begin(), before.end());
      round_row(after.data(), n, kSurveyed[f], target);
      seen.losses[f].add_row(before.data(), after.data(), n, kSurveyed[f], target);
    }
  }
}

}  // namespace

void Survey::merge(const Survey& other) {
  values.merge(other.values);
  for (std::size_t f = 0; f < losses.size(); ++f) losses[f].merge(other.losses[f]);
}

std::optional<Scalar> Survey::lies_in() const {
  for (std::size_t f = kSurveyed.size(); f-- > 0;) {
    const ErrorStats& e = losses[f];
    if (e.measured > 0 && e.max_abs == 0 && e.overflows == 0) return kSurveyed[f];
  }
  return std::nullopt;
}

Survey survey(const io::WeightFiles& files, const io::TensorInfo& tensor, const kernels::Context& ctx) {
  const Scalar type = *io::scalar_of(tensor.dtype);
  const auto count = static_cast<std::uint64_t>(tensor.count());
  const std::uint64_t pieces = (count + kPiece - 1) / kPiece;
  std::vector<Survey> seen(pieces);
  std::vector<Buffers> buffers(static_cast<std::size_t>(ctx.threads));
  std::vector<std::exception_ptr> faults(static_cast<std::size_t>(ctx.threads));
  const SimdTarget target = kernels::simd_target(ctx.simd);
  kernels::parallel_for(ctx, static_cast<std::int64_t>(pieces), [&](std::int64_t i, int thread) {
    const auto t = static_cast<std::size_t>(thread), p = static_cast<std::size_t>(i);
    if (faults[t] != nullptr) return;
    try {
      Buffers& memory = buffers[t];
      const std::uint64_t first = p * kPiece, n = std::min(kPiece, count - first);
      memory.stored.resize(n * mantissa::bytes_of(type));
      files.read(tensor.name, memory.stored, first * mantissa::bytes_of(type));
      if (type == Scalar::f64) {
        look(memory.stored.data(), type, n, target, memory.wide_before, memory.wide_after, seen[p]);
      } else {
        look(memory.stored.data(), type, n, target, memory.before, memory.after, seen[p]);
      }
    } catch (...) {
      faults[t] = std::current_exception();
    }
  });
  for (const std::exception_ptr& fault : faults) {
    if (fault != nullptr) std::rethrow_exception(fault);
  }
  Survey all;
  for (const Survey& piece : seen) all.merge(piece);
  return all;
}

}  // namespace mantissa::convert
