// Reads tensors of accepted files.
#pragma once

#include <algorithm>
#include <vector>

#include "check.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::fuzz {

inline constexpr std::uint64_t kSmallTensor = 1 << 16;

/// Reads every small tensor in several ways, which give the same bytes.
inline void read_tensors(io::WeightFiles& files) {
  for (const io::TensorInfo& tensor : std::vector(files.tensors())) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(tensor.count()) * io::bytes_of(tensor.dtype);
    require(files.find(tensor.name) != nullptr, "a tensor is found by its name");
    if (bytes > kSmallTensor) continue;
    std::vector<std::byte> values(bytes), end(bytes - bytes / 2);
    files.read(tensor.name, values);
    files.read(tensor.name, end, bytes / 2);
    require(std::equal(end.begin(), end.end(), values.begin() + static_cast<std::ptrdiff_t>(bytes / 2)),
            "a part of a tensor is that of the whole");
    const io::WeightFiles::Mapped mapped = files.map(tensor.name);
    require(std::ranges::equal(mapped.bytes, values), "a mapped tensor has the bytes that are read");
    expect_only_errors([&] {
      std::vector<float> numbers(static_cast<std::size_t>(tensor.count()));
      files.read_f32(tensor.name, numbers);
    });
    files.scale_of(tensor.name);
  }
}

}  // namespace mantissa::fuzz
