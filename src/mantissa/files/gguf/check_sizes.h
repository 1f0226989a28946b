// The sizes in a GGUF file's metadata against the shapes of its tensors.
#pragma once

#include "mantissa/files/gguf/architecture.h"
#include "mantissa/files/gguf/gguf_file.h"

namespace mantissa::gguf {

/// Throws FileError that names the metadata key whose size contradicts the others or the shape of a tensor:
/// block_count, embedding_length, feed_forward_length, attention.head_count, attention.head_count_kv, and of
/// rwkv7 wkv.head_size and the ranks. Keys
/// that are missing and tensors that the file does not have are not checked.
void check_sizes(const GgufFile& file, const Architecture& architecture);

}  // namespace mantissa::gguf
