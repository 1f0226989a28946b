// A program ready to run: its weights, its memory, and its inputs and outputs by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/arena.h"
#include "mantissa/engine/runtime/batch.h"
#include "mantissa/engine/runtime/executor.h"
#include "mantissa/engine/runtime/weights.h"

namespace mantissa::runtime {

/// Elements of a buffer, read by the host. Valid until the program runs again.
class Values {
 public:
  /// `keep` owns the bytes if they are a copy.
  Values(std::span<const std::byte> bytes, Scalar type, std::int64_t width,
         std::shared_ptr<const std::vector<std::byte>> keep)
      : bytes_(bytes), type_(type), width_(width), keep_(std::move(keep)) {}

  Scalar type() const { return type_; }
  /// Returns the number of elements of the last dimension.
  std::int64_t width() const { return width_; }
  std::size_t size() const { return bytes_.size() / bytes_of(type_); }
  const std::byte* data() const { return bytes_.data(); }
  /// Returns element i of f32 or f64 values.
  double operator[](std::size_t i) const {
    return type_ == Scalar::f64 ? as<double>()[i] : static_cast<double>(as<float>()[i]);
  }
  /// Returns the elements as T: double for f64, float for f32.
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  std::span<const std::byte> bytes_;
  Scalar type_;
  std::int64_t width_;
  std::shared_ptr<const std::vector<std::byte>> keep_;
};

/// Shares ownership of a program, a weight set and an arena, which several sessions may use. Programs of one
/// model share its weights. Programs that never run at the same time share an arena. A second session of a
/// program with another weight set (a reference model) needs memory only for these weights.
class Session {
 public:
  /// The session allocates an arena if `arena` is null or too small.
  Session(std::shared_ptr<const plan::Program> program, std::shared_ptr<WeightSet> weights,
          std::shared_ptr<Arena> arena = nullptr);

  /// Writes the inputs "ids" and, if the program has it, "targets".
  void feed(const Batch& batch);
  /// Writes elements of an input: integers from `offset` on, or the first numbers, rounded to its format.
  /// Throws InternalError for an unknown input or one of the other type, and ShapeError if it has too few
  /// elements.
  void write(std::string_view input, std::span<const std::int32_t> values, std::int64_t offset = 0);
  void write(std::string_view input, std::span<const double> values);

  /// Runs one phase (Executor::run).
  void run(graph::Phase phase, const Extent& extent, bool accumulate = false);

  /// Returns the first `count` elements of an output in f32 or f64. Throws InternalError for other outputs,
  /// and if another program has used the arena since this one ran.
  Values read(std::string_view output, std::int64_t count) const;
  /// Returns the first `count` elements of any buffer except a view, in its own type. Throws InternalError as
  /// above.
  Values read(plan::BufferId id, std::int64_t count) const;

  const plan::Program& program() const { return *program_; }
  WeightSet& weights() const { return *weights_; }
  const Device& device() const { return weights_->device(); }
  /// Returns the executor, for observers and for Executor::place().
  Executor& executor() { return executor_; }
  const Executor& executor() const { return executor_; }
  void set_stop(std::stop_token stop) { executor_.stop = std::move(stop); }

 private:
  std::shared_ptr<const plan::Program> program_;
  std::shared_ptr<WeightSet> weights_;
  std::shared_ptr<Arena> arena_;
  Executor executor_;
  std::vector<std::byte> rounded_;  // buffer of write()
};

}  // namespace mantissa::runtime
