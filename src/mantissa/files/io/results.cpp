#include "mantissa/files/io/results.h"

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::io {
namespace {

bool is_trace(const SafetensorsReader& file) {
  return file.metadata().contains("mantissa.policy") && file.find("logits") != nullptr &&
         file.find("log_probs") != nullptr && file.find("loss") != nullptr;
}

}  // namespace

bool is_trace_file(const std::filesystem::path& path) {
  try {
    return is_trace(SafetensorsReader(path));
  } catch (const disk::ReadError&) {
    throw;
  } catch (const FileError&) {
    return false;
  }
}

bool is_result_file(const std::filesystem::path& path) {
  try {
    const SafetensorsReader file(path);
    return is_trace(file) || file.metadata().contains(kKindKey);
  } catch (const disk::ReadError&) {
    throw;
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace mantissa::io
