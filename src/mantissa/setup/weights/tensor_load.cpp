#include "mantissa/setup/weights/tensor_load.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/weights/any_nonfinite.h"

namespace mantissa::weights {
namespace {

using plan::Slot;

// Small enough that the buffers of the threads do not show in the memory of a run.
constexpr std::int64_t kPiece = std::int64_t{1} << 15;

/// A piece of a tensor in the device's memory, which the host fills in place or in a buffer.
class Piece {
 public:
  Piece(const runtime::Device& device, const Matrix& m, std::int64_t first, std::int64_t n,
        std::vector<std::byte>& buffer)
      : device_(device),
        there_(static_cast<std::byte*>(m.data) +
               static_cast<std::size_t>(first) * mantissa::bytes_of(m.type)),
        here_(device.host_pointer(there_)),
        bytes_(static_cast<std::size_t>(n) * mantissa::bytes_of(m.type)) {
    if (here_ != nullptr) return;
    buffer.resize(bytes_);
    here_ = buffer.data();
  }
  std::byte* data() const { return here_; }
  void finish() const {
    if (here_ != device_.host_pointer(there_)) device_.upload(there_, {here_, bytes_});
  }

 private:
  const runtime::Device& device_;
  std::byte* there_;
  std::byte* here_;
  std::size_t bytes_;
};

std::vector<double> numbers(const runtime::Device& device, const std::byte* x, Scalar format,
                            std::int64_t n) {
  std::vector<double> out(static_cast<std::size_t>(n));
  kernels::cast(device.serial(), n, x, format, out.data(), Scalar::f64);
  return out;
}
std::size_t first_nonfinite(const std::vector<double>& x) {
  return static_cast<std::size_t>(
      std::find_if(x.begin(), x.end(), [](double v) { return !std::isfinite(v); }) - x.begin());
}

}  // namespace

TensorLoad::TensorLoad(const io::WeightFiles& files, const io::TensorInfo& tensor, const Slot& slot)
    : files_(files),
      slot_(slot),
      name_(tensor.name),
      file_(files.path_of(tensor.name)),
      stored_(*io::scalar_of(tensor.dtype)),
      wide_(slot.master == Scalar::f64 ? Scalar::f64 : Scalar::f32) {}

void TensorLoad::run(const runtime::Device& device) {
  const std::int64_t count = slot_.shape.count(), pieces = (count + kPiece - 1) / kPiece;
  std::vector<Buffers> buffers(static_cast<std::size_t>(device.host().threads));
  std::vector<std::exception_ptr> faults(static_cast<std::size_t>(pieces));
  device.parallel_for(pieces, [&](std::int64_t piece, int thread) {
    try {
      const std::int64_t first = piece * kPiece;
      run_piece(device, first, std::min(kPiece, count - first), buffers[static_cast<std::size_t>(thread)]);
    } catch (...) {
      faults[static_cast<std::size_t>(piece)] = std::current_exception();
    }
  });
  for (const std::exception_ptr& fault : faults) {
    if (fault != nullptr) std::rethrow_exception(fault);
  }
}

void TensorLoad::run_piece(const runtime::Device& device, std::int64_t first, std::int64_t n,
                           Buffers& buffers) const {
  const auto room = [&](std::vector<std::byte>& buffer, Scalar format) {
    buffer.resize(static_cast<std::size_t>(n) * mantissa::bytes_of(format));
    return buffer.data();
  };
  std::optional<Piece> to_master;
  if (master.data != nullptr) to_master.emplace(device, master, first, n, buffers.master);
  const std::size_t skip = static_cast<std::size_t>(first) * mantissa::bytes_of(stored_);
  const bool straight = to_master && stored_ == slot_.master;  // read directly into the destination
  const std::byte* values = mapped == nullptr ? nullptr : mapped + skip;
  if (values == nullptr || straight) {
    std::byte* to = straight ? to_master->data() : room(buffers.stored, stored_);
    files_.read(name_, {to, static_cast<std::size_t>(n) * mantissa::bytes_of(stored_)}, skip);
    values = to;
  }
  if (any_nonfinite(values, static_cast<std::size_t>(n), stored_)) refuse_nonfinite(device, values, first, n);
  if (stored_ != slot_.master && (to_master || !copies.empty())) {
    // Converts through f32 (f64 for f64 masters), which is exact except for stored f64.
    const std::byte* wide = values;
    if (stored_ != wide_) {
      std::byte* to = room(buffers.wide, wide_);
      kernels::cast(device.serial(), n, values, stored_, to, wide_);
      wide = to;
    }
    std::byte* to = to_master ? to_master->data() : room(buffers.master, slot_.master);
    kernels::cast(device.serial(), n, wide, wide_, to, slot_.master);
    if (any_nonfinite(to, static_cast<std::size_t>(n), slot_.master))
      refuse_range(device, wide, to, first, n);
    values = to;
  }
  if (to_master) to_master->finish();
  for (const Matrix& copy : copies) {
    const Piece to(device, copy, first, n, buffers.copy);
    kernels::cast(device.serial(), n, values, slot_.master, to.data(), copy.type);
    to.finish();
  }
}

void TensorLoad::refuse_nonfinite(const runtime::Device& device, const std::byte* values, std::int64_t first,
                                  std::int64_t n) const {
  const std::vector<double> x = numbers(device, values, stored_, n);
  const std::size_t i = first_nonfinite(x);
  throw FileError(
      "{}: tensor \"{}\" is {} at element {}; the file is damaged or its training diverged: use an earlier "
      "checkpoint",
      file_.string(), slot_.name, x[i], first + static_cast<std::int64_t>(i));
}

void TensorLoad::refuse_range(const runtime::Device& device, const std::byte* wide, const std::byte* rounded,
                              std::int64_t first, std::int64_t n) const {
  const std::size_t i = first_nonfinite(numbers(device, rounded, slot_.master, n));
  throw FileError(
      "{}: tensor \"{}\" is {} at element {}, beyond the largest {} ({}); keep the weights in f32 "
      "(32-true, bf16-mixed, 16-mixed) or bf16",
      file_.string(), slot_.name, numbers(device, wide, wide_, n)[i], first + static_cast<std::int64_t>(i),
      name(slot_.master), traits(slot_.master).max_finite);
}

}  // namespace mantissa::weights
