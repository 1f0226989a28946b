#include "mantissa/files/convert/rewrite.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/encode_row.h"
#include "mantissa/files/convert/block_rows.h"
#include "mantissa/files/io/safetensors_header.h"

namespace mantissa::convert {
namespace {

/// The conversion of one tensor.
struct Job {
  const io::TensorInfo* from = nullptr;
  std::string name;
  io::Dtype to = io::Dtype::f32;
  bool copied = false;
  RowRounding how{};
  const WeightScale* scale = nullptr;
  const AdaptedWeight* adapter = nullptr;
  bool trained = false;    // OutputTensor::trained
  std::uint64_t row = 1;   // elements along the last axis
  float tensor_scale = 1;  // used by nvfp4
};

struct Piece {
  std::size_t job = 0;
  std::uint64_t first = 0, count = 0;
};

/// Buffers of one thread.
struct Buffers {
  std::vector<std::byte> in, out;
  std::vector<float> before, after, rounded;
  std::vector<double> wide_before, wide_after, unadapted, unadapted_after;
};

/// The measurements of a piece.
struct PieceErrors {
  ErrorStats errors;
  MergeLoss merge;
};

template <class T>
void round_rows(const Job& job, const std::byte* in, std::byte* out, Scalar format, std::uint64_t first,
                std::uint64_t count, SimdTarget target, std::vector<T>& before, std::vector<T>& after,
                ErrorStats& errors) {
  const Scalar stored = *io::scalar_of(job.from->dtype);
  before.resize(kRow);
  after.resize(kRow);
  for (std::uint64_t at = 0; at < count; at += kRow) {
    const std::uint64_t n = std::min(kRow, count - at);
    load_row(in, stored, at, n, before.data(), target);
    if (job.scale != nullptr) job.scale->multiply(first + at, n, before.data());
    std::byte* to = out + at * mantissa::bytes_of(format);
    encode_row(before.data(), n, to, format, job.how, first + at, target);
    load_row(to, format, 0, n, after.data(), target);
    errors.add_row(before.data(), after.data(), n, format, target);
  }
}

/// Adds the adapter to a piece and rounds it.
void round_adapted(const Job& job, const std::byte* in, std::byte* out, Scalar format, std::uint64_t first,
                   std::uint64_t count, SimdTarget target, Buffers& memory, PieceErrors& measured) {
  const Scalar stored = *io::scalar_of(job.from->dtype);
  for (std::vector<double>* buffer :
       {&memory.wide_before, &memory.wide_after, &memory.unadapted, &memory.unadapted_after})
    buffer->resize(kRow);
  double *exact = memory.wide_before.data(), *after = memory.wide_after.data(),
         *before = memory.unadapted.data(), *before_after = memory.unadapted_after.data();
  for (std::uint64_t at = 0; at < count; at += kRow) {
    const std::uint64_t n = std::min(kRow, count - at);
    load_row(in, stored, at, n, exact, target);
    if (job.scale != nullptr) job.scale->multiply(first + at, n, exact);
    job.adapter->hold(first + at, n, exact);
    std::copy_n(exact, n, before);
    job.adapter->apply(first + at, n, exact);
    std::byte* to = out + at * mantissa::bytes_of(format);
    encode_row(before, n, to, format, job.how, first + at, target);
    load_row(to, format, 0, n, before_after, target);
    encode_row(exact, n, to, format, job.how, first + at, target);
    load_row(to, format, 0, n, after, target);
    measured.errors.add_row(exact, after, n, format, target);
    measured.merge.add(before, exact, before_after, after, n);
  }
}

/// Converts a piece to blocks. A piece starts with a row, or a multiple of kRow elements after the row's
/// start.
template <class T>
void round_blocks_of(const Job& job, BlockFormat blocks, const std::byte* in, std::byte* out, Scalar format,
                     std::uint64_t first, std::uint64_t count, SimdTarget target, std::vector<T>& before,
                     std::vector<T>& after, std::vector<float>& rounded, ErrorStats& errors) {
  const Scalar stored = *io::scalar_of(job.from->dtype);
  before.resize(kRow);
  after.resize(kRow);
  rounded.resize(kRow);
  for (std::uint64_t at = 0, n = 0; at < count; at += n) {
    n = std::min(count - at, block_piece(job.row, first + at, kRow));
    load_row(in, stored, at, n, before.data(), target);
    if (job.scale != nullptr) job.scale->multiply(first + at, n, before.data());
    to_blocks(before.data(), n, rounded.data());
    round_in_blocks(blocks, rounded.data(), n, job.row, first + at, job.tensor_scale, target);
    std::byte* to = out + at * mantissa::bytes_of(format);
    encode_row(rounded.data(), n, to, format, {}, first + at, target);
    load_row(to, format, 0, n, after.data(), target);
    if (job.trained) std::copy_n(rounded.data(), n, before.data());
    errors.add_row(before.data(), after.data(), n, format, target);
  }
}

/// Returns the largest magnitude of `count` values that is finite in f32.
template <class T>
float largest_of(const Job& job, const std::byte* in, std::uint64_t first, std::uint64_t count,
                 SimdTarget target, std::vector<T>& before, std::vector<float>& rounded) {
  float largest = 0;
  before.resize(kRow);
  rounded.resize(kRow);
  for (std::uint64_t at = 0, n = 0; at < count; at += n) {
    n = std::min(kRow, count - at);
    load_row(in, *io::scalar_of(job.from->dtype), at, n, before.data(), target);
    if (job.scale != nullptr) job.scale->multiply(first + at, n, before.data());
    to_blocks(before.data(), n, rounded.data());
    for (std::uint64_t i = 0; i < n; ++i) {
      const float magnitude = std::abs(rounded[i]);
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
  }
  return largest;
}

class Rewriter {
 public:
  Rewriter(const io::TensorSource& in, std::span<const OutputTensor> outputs, const Change& change,
           const kernels::Context& ctx)
      : in_(in), change_(change), ctx_(ctx), target_(kernels::simd_target(ctx.simd)) {
    for (const OutputTensor& output : outputs) {
      Job job;
      job.from = output.tensor;
      job.name = output.name;
      job.copied = keeps(output, change);
      job.to = job.copied ? output.tensor->dtype : dtype_after(output.tensor->dtype, change);
      job.trained = output.trained.value_or(false);
      job.scale = output.scale.get();
      job.adapter = output.adapter.get();
      job.how = {change.rounding, change.saturate,
                 RandomStream(change.seed, RandomUse::conversion, hash_name(output.name), 0)};
      const auto count = static_cast<std::uint64_t>(output.tensor->count());
      job.row = row_length(output.tensor->shape);
      for (std::uint64_t first = 0, size = 0; first < count; first += size) {
        size = std::min(count - first, piece_size(job, first));
        pieces_.push_back({jobs_.size(), first, size});
      }
      jobs_.push_back(std::move(job));
    }
  }

  std::optional<std::vector<RewrittenTensor>> run(Container container, const disk::Target& out,
                                                  const std::map<std::string, std::string>& metadata,
                                                  const std::stop_token& stop) {
    layout_ = lay_out(container, headed(), metadata);
    disk::AtomicFile file(out);
    file.reserve(layout_->bytes());
    if (layout_->needs_crcs()) crcs_.resize(pieces_.size());
    if (change_.blocks == BlockFormat::nvfp4) scale_tensors(stop);
    std::vector<PieceErrors> errors(pieces_.size());
    for_pieces(stop, [&](std::size_t p, Buffers& memory) { errors[p] = move_piece(p, memory, file); });
    if (stop.stop_requested()) return std::nullopt;
    std::vector<RewrittenTensor> done = joined(errors);
    layout_->write_around(file, joined_crcs());
    file.commit();
    return done;
  }

 private:
  /// Returns the size of the piece that starts at `first`.
  std::uint64_t piece_size(const Job& job, std::uint64_t first) const {
    return change_.blocks ? block_piece(job.row, first, kPiece) : kPiece;
  }

  /// Calls work(piece, the thread's buffers) for all pieces on all threads. Rethrows an exception of `work`.
  template <class Work>
  void for_pieces(const std::stop_token& stop, const Work& work) const {
    std::vector<std::exception_ptr> faults(static_cast<std::size_t>(ctx_.threads));
    std::vector<Buffers> buffers(static_cast<std::size_t>(ctx_.threads));
    kernels::parallel_for(ctx_, static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t i, int thread) {
      const auto t = static_cast<std::size_t>(thread);
      if (stop.stop_requested() || faults[t] != nullptr) return;
      try {
        work(static_cast<std::size_t>(i), buffers[t]);
      } catch (...) {
        faults[t] = std::current_exception();
      }
    });
    for (const std::exception_ptr& fault : faults) {
      if (fault != nullptr) std::rethrow_exception(fault);
    }
  }

  /// Reads a piece's stored bytes into `memory`.
  std::span<std::byte> read_piece(const Piece& piece, Buffers& memory) const {
    const Job& job = jobs_[piece.job];
    const std::uint64_t width = io::bytes_of(job.from->dtype);
    memory.in.resize(kPiece * width);
    const std::span<std::byte> stored = std::span(memory.in).first(piece.count * width);
    in_.read(*job.from, stored, piece.first * width);
    return stored;
  }

  /// Sets the scale of each tensor from its largest magnitude.
  void scale_tensors(const std::stop_token& stop) {
    std::vector<float> largest(pieces_.size());
    for_pieces(stop, [&](std::size_t p, Buffers& memory) {
      const Piece& piece = pieces_[p];
      const Job& job = jobs_[piece.job];
      if (job.copied) return;
      const std::span<std::byte> stored = read_piece(piece, memory);
      const auto largest_in = [&](auto& before) {
        return largest_of(job, stored.data(), piece.first, piece.count, target_, before, memory.rounded);
      };
      largest[p] =
          job.from->dtype == io::Dtype::f64 ? largest_in(memory.wide_before) : largest_in(memory.before);
    });
    std::vector<float> amax(jobs_.size());
    for (std::size_t p = 0; p < pieces_.size(); ++p)
      amax[pieces_[p].job] = std::max(amax[pieces_[p].job], largest[p]);
    for (std::size_t j = 0; j < jobs_.size(); ++j) jobs_[j].tensor_scale = nvfp4_tensor_scale(amax[j]);
  }

  std::vector<io::TensorToWrite> headed() const {
    std::vector<io::TensorToWrite> tensors;
    for (const Job& job : jobs_) {
      io::TensorToWrite t;
      t.name = job.name;
      t.dtype = job.to;
      t.shape = job.from->shape;
      t.fill = [](std::uint64_t, std::span<std::byte>) {};  // the bytes follow the header in pieces
      tensors.push_back(std::move(t));
    }
    return tensors;
  }

  PieceErrors move_piece(std::size_t p, Buffers& memory, disk::AtomicFile& file) {
    const Piece& piece = pieces_[p];
    const Job& job = jobs_[piece.job];
    const std::uint64_t out_width = io::bytes_of(job.to);
    const std::span<std::byte> stored = read_piece(piece, memory);
    PieceErrors measured;
    ErrorStats& errors = measured.errors;
    std::span<const std::byte> out = stored;
    if (!job.copied) {
      memory.out.resize(kPiece * out_width);
      const std::span<std::byte> to = std::span(memory.out).first(piece.count * out_width);
      const Scalar from = *io::scalar_of(job.from->dtype);
      const Scalar format = change_.format.value_or(from);
      const auto round = [&](auto& before, auto& after) {
        if (change_.blocks) {
          round_blocks_of(job, *change_.blocks, stored.data(), to.data(), format, piece.first, piece.count,
                          target_, before, after, memory.rounded, errors);
        } else {
          round_rows(job, stored.data(), to.data(), format, piece.first, piece.count, target_, before, after,
                     errors);
        }
      };
      if (job.adapter != nullptr) {
        round_adapted(job, stored.data(), to.data(), format, piece.first, piece.count, target_, memory,
                      measured);
      } else if (from == Scalar::f64 || format == Scalar::f64) {
        round(memory.wide_before, memory.wide_after);
      } else {
        round(memory.before, memory.after);
      }
      out = to;
    }
    if (!crcs_.empty()) crcs_[p] = io::pth::Crc::of(out);
    file.write_at(layout_->begin(piece.job) + piece.first * out_width, out);
    return measured;
  }

  /// Joins the results of the pieces by tensor, in order, so that sums always have the same bits.
  std::vector<RewrittenTensor> joined(const std::vector<PieceErrors>& errors) const {
    std::vector<RewrittenTensor> done;
    for (const Job& job : jobs_)
      done.push_back({job.name, job.from->shape, job.from->dtype, job.to, job.copied});
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      RewrittenTensor& t = done[pieces_[p].job];
      t.errors.merge(errors[p].errors);
      if (jobs_[pieces_[p].job].adapter == nullptr) continue;
      if (!t.merge) t.merge.emplace();
      t.merge->merge(errors[p].merge);
    }
    for (RewrittenTensor& t : done) {
      if (change_.rounding == Rounding::toward_zero) t.errors.overflows = 0;  // nothing exceeds the range
      if (!t.copied || !io::scalar_of(t.from)) continue;
      t.errors.count = t.errors.measured =
          static_cast<std::uint64_t>(io::byte_size(t.shape, t.from).value_or(0) / io::bytes_of(t.from));
    }
    return done;
  }

  /// Joins the checksums of the pieces by tensor.
  std::vector<io::pth::Crc> joined_crcs() const {
    std::vector<io::pth::Crc> all(crcs_.empty() ? 0 : jobs_.size());
    for (std::size_t p = 0; p < crcs_.size(); ++p) all[pieces_[p].job].append(crcs_[p]);
    return all;
  }

  const io::TensorSource& in_;
  const Change& change_;
  const kernels::Context& ctx_;
  SimdTarget target_;
  std::vector<Job> jobs_;
  std::vector<Piece> pieces_;
  std::vector<io::pth::Crc> crcs_;  // of the pieces, if the layout needs them
  std::unique_ptr<const TensorFile> layout_;
};

}  // namespace

std::string_view rounded_to(const Change& change) {
  return change.blocks ? traits(*change.blocks).name : name(*change.format);
}

io::Dtype dtype_after(io::Dtype dtype, const Change& change) {
  return change.format && io::scalar_of(dtype) ? io::dtype_of(*change.format) : dtype;
}

bool rounds(const OutputTensor& output, const Change& change) {
  const std::optional<Scalar> from = output.scale ? Scalar::f32 : io::scalar_of(output.tensor->dtype);
  if (output.adapter != nullptr) return true;
  if (output.trained == false) return false;
  return change.format && from && (change.blocks || !holds(*change.format, *from));
}

bool keeps(const OutputTensor& output, const Change& change) {
  const io::Dtype dtype = output.tensor->dtype;
  if (output.trained == false) return true;
  return output.scale == nullptr && output.adapter == nullptr && dtype_after(dtype, change) == dtype &&
         !rounds(output, change);
}

std::optional<std::vector<RewrittenTensor>> rewrite_file(const io::TensorSource& in,
                                                         std::span<const OutputTensor> outputs,
                                                         Container container, const disk::Target& out,
                                                         const std::map<std::string, std::string>& metadata,
                                                         const Change& change, const kernels::Context& ctx,
                                                         const std::stop_token& stop) {
  return Rewriter(in, outputs, change, ctx).run(container, out, metadata, stop);
}

}  // namespace mantissa::convert
