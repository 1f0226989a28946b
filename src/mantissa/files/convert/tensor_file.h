// A file of tensors whose values are written in pieces, in any order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/files/io/pth/torch_layout.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::convert {

enum class Container { safetensors, torch };

class TensorFile {
 public:
  virtual ~TensorFile() = default;

  /// Returns the number of bytes of the file.
  virtual std::uint64_t bytes() const = 0;
  /// Returns where the values of a tensor begin in the file.
  virtual std::uint64_t begin(std::size_t tensor) const = 0;
  virtual bool needs_crcs() const = 0;
  /// Writes everything but the values. `crcs` are those of the tensors, if needs_crcs().
  virtual void write_around(disk::AtomicFile& file, std::span<const io::pth::Crc> crcs) const = 0;
};

/// Returns the layout of `tensors` in order. Throws like io::build_header.
std::unique_ptr<const TensorFile> lay_out(Container container, std::span<const io::TensorToWrite> tensors,
                                          const std::map<std::string, std::string>& metadata);

}  // namespace mantissa::convert
