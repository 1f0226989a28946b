// The memory of a model's parameters: masters, and the copies in lower formats that products read. Programs
// find their weights in it by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/scales.h"

namespace mantissa::runtime {

class InterleavedWeights;

/// Returns for each buffer whether it is a master or copy that a step reads.
std::vector<bool> read_weights(const plan::Program& program);

/// Returns for each buffer whether it is a master or copy that a weight set must hold: those that a step
/// reads, and all of parameters that are not fixed.
std::vector<bool> held_weights(const plan::Program& program);

/// Returns for each buffer whether it is a weight that all steps can read in quantized blocks. `transposed`
/// says whether rows of blocks may be its columns.
struct QuantizedReads {
  bool rows = false, transposed = false;
};
std::vector<QuantizedReads> quantized_reads(const plan::Program& program);

/// The weights of one model for any number of programs. A program finds its slots by name, so training,
/// log-probabilities and decoding can share one set. The programs and the device must outlive the set.
class WeightSet {
 public:
  using Programs = std::span<const plan::Program* const>;

  /// Allocates all masters and copies of `program`.
  WeightSet(const plan::Program& program, const Device& device);
  /// Allocates all masters and copies of `programs`, which are programs of one model. The update of the first
  /// program writes that program's copies. Throws InternalError if a parameter has different shapes or master
  /// formats in two programs.
  WeightSet(Programs programs, const Device& device);

  /// A read-only master or copy in memory of another owner, such as a mapped file.
  struct View {
    plan::BufferId buffer = plan::kNoBuffer;
    const std::byte* data = nullptr;
    std::shared_ptr<const void> keep;  // keeps `data` alive
    /// `data` holds quantized blocks, whose values are those of the buffer after rounding to its type.
    /// Requires quantized_reads().
    std::optional<QuantizedMatrix> quants = {};
    /// Takes the pages of a part of `data` out of memory until the next access. Null: it cannot.
    std::function<void(std::span<const std::byte>)> release = {};
  };
  /// Contains only the weights of held_weights(). Uses those of `views`, which are not trained, in place and
  /// allocates the others. Fixed parameters are filled by the caller alone.
  WeightSet(const plan::Program& program, std::vector<View> views, const Device& device);

  /// Returns the memory of a master or copy of `program`, or null if the set does not have it.
  std::byte* find(const plan::Program& program, plan::BufferId id) const;
  /// Returns the blocks in which the set has that master or copy, or null if it has its elements. A parameter
  /// that the first program holds in blocks (plan::Buffer::quants) has them for all programs.
  std::optional<QuantizedMatrix> quants(const plan::Program& program, plan::BufferId id) const;
  /// Returns scale `i` of `program`, found by the name of its tensor, or null if the set does not have it.
  TensorScale* scale(const plan::Program& program, std::int32_t i) const;

  /// Returns true if the set has the master or copy `id` of the first program.
  bool has(plan::BufferId id) const { return find(program(), id) != nullptr; }
  /// Returns the master of a slot of the first program. Throws InternalError if the set does not have its
  /// elements.
  Matrix master(std::size_t slot) const;
  /// Returns bytes of that master from `offset` on, also if another rank has it: where they are, or in
  /// `staging`.
  std::span<const std::byte> view_master(std::size_t slot, std::size_t offset, std::size_t size,
                                         std::vector<std::byte>& staging) const;
  /// Sets what reads the masters that other ranks have.
  using ReadMaster = std::function<void(std::size_t slot, std::size_t offset, std::span<std::byte> out)>;
  void set_remote(ReadMaster read) { read_remote_ = std::move(read); }
  /// Returns copy `c` of a slot of the first program.
  Matrix copy(std::size_t slot, std::size_t c) const;

  /// Return the memory that depends on a slot's master: the copies of all programs, and the scales that are
  /// computed from the weights of this step. Sets of the same programs have them in the same order.
  std::vector<std::span<std::byte>> copies_of(std::size_t slot) const;
  std::vector<std::span<std::byte>> scales_of(std::size_t slot) const;

  /// Takes the pages of `part` of the master or copy `id` of the first program out of memory, if it is a view
  /// of a mapped file that no step reads.
  void release_unread(plan::BufferId id, std::span<const std::byte> part) const;

  /// Initializes every master by its slot's Init, rounded to the master's format, and writes the copies.
  /// Random numbers are keyed by (seed, the parameter's name, element index).
  void initialize(std::uint64_t seed);
  /// Does the same for the parameter of one slot of the first program, also if it is fixed, in as much of its
  /// memory as the set has.
  void draw(std::size_t slot, std::uint64_t seed);
  // In a set that holds only some weights, initialize(), assign() and refresh_copies() leave fixed parameters
  // as they are. Copies of parameters that another rank updates are computed there.

  /// Copies the masters and the histories of the scales from another set of the same model, and writes the
  /// copies. Throws InternalError if `other` lacks a master or has it in another shape or format.
  void assign(const WeightSet& other);
  /// Copies the histories of the scales from another set of the same model, and writes the copies whose
  /// scales change by this.
  void take_scales(const WeightSet& other);
  /// Writes every copy from its master.
  void refresh_copies();
  /// Writes the copies that the first program's update does not write: those stored under scales or rounded
  /// for serving, and those that only other programs have.
  void refresh_derived();

  /// Sets copies of weights that executors created later read in products of few rows.
  void set_interleaved(std::shared_ptr<const InterleavedWeights> copies) { interleaved_ = std::move(copies); }
  /// Returns them, or null.
  const InterleavedWeights* interleaved() const { return interleaved_.get(); }

  Scales& scales() const { return *scales_; }
  /// Returns the first program.
  const plan::Program& program() const { return *programs_.front(); }
  const Device& device() const { return *device_; }
  /// Returns the allocated bytes, without views.
  std::size_t bytes() const { return storage_.size(); }

 private:
  /// One copy of a parameter in a lower format.
  struct Copy {
    const plan::Buffer* buffer = nullptr;
    const plan::ScaleSlot* scale = nullptr;  // null: none
    bool derived = false;                    // not written by the first program's update
    std::byte* data = nullptr;
    std::optional<QuantizedMatrix> quants = {};
    /// Returns true if this copy has the contents of `b`, a copy of any program with the scale `its_scale`.
    bool holds(const plan::Buffer& b, const plan::ScaleSlot* its_scale) const;
  };
  struct Parameter {
    const plan::Slot* slot = nullptr;
    const plan::Buffer* master_buffer = nullptr;
    std::byte* master = nullptr;
    std::vector<Copy> copies;
    std::optional<QuantizedMatrix> quants = {};  // of the master
    bool fixed = false;                          // filled by the set's creator and never written
  };
  /// Memory of a master or copy.
  struct Place {
    std::byte* data = nullptr;
    std::optional<QuantizedMatrix> quants = {};
  };

  /// Adds the parameters and copies of `program` that the set does not have.
  void add(const plan::Program& program);
  /// Allocates every master and copy for which `wanted` returns true.
  template <class Wanted>
  void allocate(const Wanted& wanted);
  const Parameter* parameter(std::string_view name) const;
  Place place(const plan::Program& program, plan::BufferId id) const;
  void refresh(const Parameter& parameter, const Copy& copy);

  std::vector<const plan::Program*> programs_;
  const Device* device_;
  std::unique_ptr<Scales> scales_;
  std::vector<Parameter> parameters_;  // in the order of the first program's slots
  Storage storage_;
  std::vector<View> views_;
  std::vector<bool> read_;  // by buffer of the first program, if there are views
  std::shared_ptr<const InterleavedWeights> interleaved_;
  ReadMaster read_remote_;
};

}  // namespace mantissa::runtime
