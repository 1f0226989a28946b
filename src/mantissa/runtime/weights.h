// The memory of a model's parameters: masters, and the copies in lower formats that products read. Programs
// find their weights in it by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/plan/program.h"
#include "mantissa/runtime/device.h"
#include "mantissa/runtime/scales.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::runtime {

/// Returns the bytes of the masters and copies that the program's steps read: the weights of a program that
/// does not train.
std::size_t read_weight_bytes(const plan::Program& program);

/// The weights of one model for any number of programs. A program finds its slots by name, so training,
/// log-probabilities and decoding can share one set; a second set of the same program costs its own memory
/// and nothing else. The programs and the device must outlive the set.
class WeightSet {
 public:
  using Programs = std::span<const plan::Program* const>;

  /// Allocates all masters and copies of `program`.
  WeightSet(const plan::Program& program, const Device& device);
  /// Allocates all masters and copies of `programs`, which are programs of one model. Masters have the
  /// format that the first program gives them, and its update writes its copies. Throws InternalError if a
  /// parameter has another shape or master format in another program.
  WeightSet(Programs programs, const Device& device);

  /// A master or copy that lies elsewhere, and what keeps it there. Nobody may write to it.
  struct View {
    plan::BufferId buffer = plan::kNoBuffer;
    const std::byte* data = nullptr;
    std::shared_ptr<const void> keep;
  };
  /// Holds only the weights that the steps of `program`, which does not train, read: those of `views` in
  /// place, and the others in the set's own memory.
  WeightSet(const plan::Program& program, std::vector<View> views, const Device& device);

  /// Returns the memory of a master or copy of `program`, or null if the set does not have it.
  std::byte* find(const plan::Program& program, plan::BufferId id) const;
  /// Returns scale `i` of `program`, found by the name of its tensor, or null if the set does not have it.
  TensorScale* scale(const plan::Program& program, std::int32_t i) const;

  /// Returns whether the set has a master or copy of the first program.
  bool has(plan::BufferId id) const { return find(program(), id) != nullptr; }
  /// Returns the master of a slot of the first program.
  Matrix master(std::size_t slot) const;
  /// Returns copy `c` of a slot of the first program.
  Matrix copy(std::size_t slot, std::size_t c) const;

  /// Draws every master from its slot's Init, with Philox keyed by (seed, the parameter's name, element
  /// index), rounds it to the master's format, and writes the copies.
  void initialise(std::uint64_t seed);
  /// Takes the masters, and the histories of the scales, of another set of the same model, and writes the
  /// copies.
  void assign(const WeightSet& other);
  /// Writes every copy from its master.
  void refresh_copies();
  /// Writes the copies that the first program's update does not write: those stored under scales, and those
  /// that only other programs have.
  void refresh_derived();

  Scales& scales() const { return *scales_; }
  /// The first program.
  const plan::Program& program() const { return *programs_.front(); }
  const Device& device() const { return *device_; }
  /// The set's own memory, without views.
  std::size_t bytes() const { return storage_.size(); }

 private:
  /// One copy of a parameter in a lower format.
  struct Copy {
    const plan::Buffer* buffer = nullptr;
    const plan::ScaleSlot* scale = nullptr;  // null: none
    bool derived = false;                    // not written by the first program's update
    std::byte* data = nullptr;
    /// Returns whether it holds the values of `b`, a copy in any program, under the scale `its_scale`.
    bool holds(const plan::Buffer& b, const plan::ScaleSlot* its_scale) const;
  };
  struct Parameter {
    const plan::Slot* slot = nullptr;
    const plan::Buffer* master_buffer = nullptr;
    std::byte* master = nullptr;
    std::vector<Copy> copies;
  };

  /// Adds the parameters and copies of `program` that the set does not have.
  void add(const plan::Program& program);
  /// Gives memory to every master and copy that `wanted` accepts.
  template <class Wanted>
  void allocate(const Wanted& wanted);
  const Parameter* parameter(std::string_view name) const;
  void refresh(const Parameter& parameter, const Copy& copy);

  std::vector<const plan::Program*> programs_;
  const Device* device_;
  std::unique_ptr<Scales> scales_;
  std::vector<Parameter> parameters_;  // in the order of the first program's slots
  Storage storage_;
  std::vector<View> views_;
};

}  // namespace mantissa::runtime
