#include "mantissa/files/convert/survey.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/files/convert/block_rows.h"

namespace mantissa::convert {
namespace {

struct SurveyPiece {
  std::uint64_t first = 0, count = 0;
};

/// SurveyBuffers of one thread.
struct SurveyBuffers {
  std::vector<std::byte> stored;
  std::vector<float> before, after, rounded;
  std::vector<double> wide_before, wide_after;
};

/// The result of one piece, and its largest magnitude that is finite in f32.
struct Seen {
  Survey survey;
  float largest = 0;
};

template <class T>
void look(const std::byte* stored, Scalar type, std::uint64_t count, SimdTarget target,
          std::vector<T>& before, std::vector<T>& after, std::vector<float>& rounded, Seen& seen) {
  before.resize(kRow);
  for (std::uint64_t at = 0; at < count; at += kRow) {
    const std::uint64_t n = std::min(kRow, count - at);
    load_row(stored, type, at, n, before.data(), target);
    seen.survey.values.add_row(before.data(), n, target);
    for (std::size_t f = 0; f < kSurveyed.size(); ++f) {
      after.assign(before.begin(), before.end());
      round_row(after.data(), n, kSurveyed[f], target);
      seen.survey.losses[f].add_row(before.data(), after.data(), n, kSurveyed[f], target);
    }
    if constexpr (sizeof(T) == sizeof(double)) {
      rounded.resize(kRow);
      to_blocks(before.data(), n, rounded.data());
      for (std::uint64_t i = 0; i < n; ++i) {
        const float magnitude = std::abs(rounded[i]);
        if (std::isfinite(magnitude)) seen.largest = std::max(seen.largest, magnitude);
      }
    }
  }
  const ValueStats& v = seen.survey.values;
  if (sizeof(T) == sizeof(float) && v.finite() > 0)
    seen.largest = static_cast<float>(std::max(std::abs(v.min), std::abs(v.max)));
}

/// Surveys a piece in blocks. A piece starts with a row, or a multiple of kRow elements after the row's
/// start.
template <class T>
void look_in_blocks(const std::byte* stored, Scalar type, const SurveyPiece& piece, std::uint64_t row,
                    float tensor_scale, SimdTarget target, std::vector<T>& before, std::vector<T>& after,
                    std::vector<float>& rounded, Survey& seen) {
  before.resize(kRow);
  after.resize(kRow);
  rounded.resize(kRow);
  for (std::uint64_t at = 0, n = 0; at < piece.count; at += n) {
    n = std::min(piece.count - at, block_piece(row, piece.first + at, kRow));
    load_row(stored, type, at, n, before.data(), target);
    for (std::size_t f = 0; f < std::size(kBlockFormats); ++f) {
      const Scalar kept = stored_as(kBlockFormats[f]);
      to_blocks(before.data(), n, rounded.data());
      round_in_blocks(kBlockFormats[f], rounded.data(), n, row, piece.first + at, tensor_scale, target);
      round_row(rounded.data(), n, kept, target);
      const T* now = after.data();
      if constexpr (sizeof(T) == sizeof(float)) {
        now = rounded.data();
      } else {
        std::copy_n(rounded.data(), n, after.data());
      }
      seen.block_losses[f].add_row(before.data(), now, n, kept, target);
    }
  }
}

/// Surveys one tensor, whose pieces run on all threads.
class Surveyor {
 public:
  Surveyor(const io::WeightFiles& files, const io::TensorInfo& tensor, const kernels::Context& ctx)
      : files_(files),
        tensor_(tensor),
        ctx_(ctx),
        target_(kernels::simd_target(ctx.simd)),
        type_(*io::scalar_of(tensor.dtype)),
        count_(static_cast<std::uint64_t>(tensor.count())),
        row_(row_length(tensor.shape)),
        buffers_(static_cast<std::size_t>(ctx.threads)) {}

  Survey run() {
    std::vector<Seen> plain =
        over(pieces(false), [&](const SurveyPiece& piece, SurveyBuffers& memory, Seen& seen) {
          if (type_ == Scalar::f64) {
            look(memory.stored.data(), type_, piece.count, target_, memory.wide_before, memory.wide_after,
                 memory.rounded, seen);
          } else {
            look(memory.stored.data(), type_, piece.count, target_, memory.before, memory.after,
                 memory.rounded, seen);
          }
        });
    float largest = 0;
    for (const Seen& s : plain) largest = std::max(largest, s.largest);
    const float scale = nvfp4_tensor_scale(largest);
    const std::vector<Seen> blocks =
        over(pieces(true), [&](const SurveyPiece& piece, SurveyBuffers& memory, Seen& seen) {
          if (type_ == Scalar::f64) {
            look_in_blocks(memory.stored.data(), type_, piece, row_, scale, target_, memory.wide_before,
                           memory.wide_after, memory.rounded, seen.survey);
          } else {
            look_in_blocks(memory.stored.data(), type_, piece, row_, scale, target_, memory.before,
                           memory.after, memory.rounded, seen.survey);
          }
        });
    Survey all;
    for (const std::vector<Seen>* seen : {&std::as_const(plain), &blocks}) {
      for (const Seen& s : *seen) all.merge(s.survey);
    }
    return all;
  }

 private:
  /// Splits the tensor as a conversion does, so that sums have the same bits.
  std::vector<SurveyPiece> pieces(bool blocks) const {
    std::vector<SurveyPiece> all;
    for (std::uint64_t first = 0; first < count_; first += all.back().count)
      all.push_back({first, std::min(count_ - first, blocks ? block_piece(row_, first, kPiece) : kPiece)});
    return all;
  }

  /// Calls work(piece, buffers with the piece's bytes, its result) for all pieces on all threads.
  template <class Work>
  std::vector<Seen> over(const std::vector<SurveyPiece>& pieces, const Work& work) {
    std::vector<Seen> seen(pieces.size());
    std::vector<std::exception_ptr> faults(buffers_.size());
    kernels::parallel_for(ctx_, static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i, int thread) {
      const auto t = static_cast<std::size_t>(thread), p = static_cast<std::size_t>(i);
      if (faults[t] != nullptr) return;
      try {
        const std::size_t width = mantissa::bytes_of(type_);
        SurveyBuffers& memory = buffers_[t];
        memory.stored.resize(pieces[p].count * width);
        files_.read(tensor_.name, memory.stored, pieces[p].first * width);
        work(pieces[p], memory, seen[p]);
      } catch (...) {
        faults[t] = std::current_exception();
      }
    });
    for (const std::exception_ptr& fault : faults) {
      if (fault != nullptr) std::rethrow_exception(fault);
    }
    return seen;
  }

  const io::WeightFiles& files_;
  const io::TensorInfo& tensor_;
  const kernels::Context& ctx_;
  SimdTarget target_;
  Scalar type_;
  std::uint64_t count_, row_;
  std::vector<SurveyBuffers> buffers_;
};

}  // namespace

void Survey::merge(const Survey& other) {
  values.merge(other.values);
  for (std::size_t f = 0; f < losses.size(); ++f) losses[f].merge(other.losses[f]);
  for (std::size_t f = 0; f < block_losses.size(); ++f) block_losses[f].merge(other.block_losses[f]);
}

std::optional<Scalar> Survey::lies_in() const {
  for (std::size_t f = kSurveyed.size(); f-- > 0;) {
    const ErrorStats& e = losses[f];
    if (e.measured > 0 && e.max_abs == 0 && e.overflows == 0) return kSurveyed[f];
  }
  return std::nullopt;
}

void Survey::for_losses(const std::function<void(std::string_view, const ErrorStats&)>& look) const {
  for (std::size_t f = 0; f < losses.size(); ++f) look(name(kSurveyed[f]), losses[f]);
  for (std::size_t f = 0; f < block_losses.size(); ++f) look(traits(kBlockFormats[f]).name, block_losses[f]);
}

Survey survey(const io::WeightFiles& files, const io::TensorInfo& tensor, const kernels::Context& ctx) {
  return Surveyor(files, tensor, ctx).run();
}

}  // namespace mantissa::convert
