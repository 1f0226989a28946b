#include "mantissa/train/steps/trace_ids.h"

#include <algorithm>
#include <span>
#include <string>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::train {
namespace {

/// Ids of a [B, T] tensor of a safetensors file.
struct IdTable {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
};

IdTable read_ids(const io::SafetensorsReader& file, const io::TensorInfo& info) {
  const bool wide = info.dtype == io::Dtype::i64;
  if (!wide && info.dtype != io::Dtype::i32) {
    throw DtypeError(
        "{0}: is {1} in {2}, but {3} are I32 or I64 and no policy converts them; save it with "
        "tensor.to(torch.int64) in PyTorch, or .astype(numpy.int32) in NumPy",
        info.name, io::safetensors_name(info.dtype), file.path().string(),
        info.name == "labels" ? "labels" : "ids");
  }
  if (info.shape.size() != 2 || info.shape[0] < 1 || info.shape[1] < 1) {
    throw ShapeError("{}: tensor \"{}\" has {} dimensions or no elements; it must be [batch, tokens]",
                     file.path().string(), info.name, info.shape.size());
  }
  IdTable table{info.shape[0], info.shape[1], {}};
  const auto count = static_cast<std::size_t>(info.count());
  table.ids.resize(count);
  if (wide) {
    file.read(info, std::as_writable_bytes(std::span(table.ids)));
  } else {
    std::vector<std::int32_t> narrow(count);
    file.read(info, std::as_writable_bytes(std::span(narrow)));
    std::copy(narrow.begin(), narrow.end(), table.ids.begin());
  }
  return table;
}

void check_range(const IdTable& table, std::int64_t vocabulary, bool labels, const std::string& where) {
  for (std::size_t i = 0; i < table.ids.size(); ++i) {
    const std::int64_t id = table.ids[i];
    if ((id < 0 || id >= vocabulary) && !(labels && id == kIgnoredLabel)) {
      throw ConfigError("{}: {} [{}, {}] is {}, but the vocabulary has {} entries (0 … {}{})", where,
                        labels ? "labels" : "input_ids", i / static_cast<std::size_t>(table.length),
                        i % static_cast<std::size_t>(table.length), id, vocabulary, vocabulary - 1,
                        labels ? ", or -100 where ignored" : "");
    }
  }
}

/// Returns a table of rows from memory, which must have the same length.
IdTable table_of(const std::vector<std::vector<std::int32_t>>& rows, const char* what) {
  if (rows.empty() || rows.front().empty())
    throw ShapeError("{}: no ids; give at least one row of at least one id", what);
  IdTable table{static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows.front().size()), {}};
  for (const std::vector<std::int32_t>& row : rows) {
    if (row.size() != rows.front().size()) {
      throw ShapeError("{}: row {} has {} and the first one {}; rows must have the same length", what,
                       &row - rows.data(), counted(row.size(), "id"), rows.front().size());
    }
    table.ids.insert(table.ids.end(), row.begin(), row.end());
  }
  return table;
}

TraceIds joined(IdTable ids, IdTable labels, std::int64_t vocabulary, const std::string& where) {
  check_range(ids, vocabulary, false, where);
  if (labels.rows != ids.rows || labels.length != ids.length) {
    throw ShapeError("{}: labels are [{}, {}], but input_ids are [{}, {}]", where, labels.rows, labels.length,
                     ids.rows, ids.length);
  }
  check_range(labels, vocabulary, true, where);
  return {ids.rows, ids.length, std::move(ids.ids), std::move(labels.ids)};
}

}  // namespace

TraceIds trace_ids(const std::filesystem::path& file, std::int64_t vocabulary) {
  const io::SafetensorsReader reader(file);
  const io::TensorInfo* info = reader.find("input_ids");
  if (info == nullptr) {
    throw FileError("{}: has no tensor \"input_ids\" [batch, tokens] of I32 or I64", file.string());
  }
  IdTable ids = read_ids(reader, *info);
  const io::TensorInfo* labels = reader.find("labels");
  IdTable other = labels == nullptr ? ids : read_ids(reader, *labels);
  return joined(std::move(ids), std::move(other), vocabulary, file.string());
}

TraceIds trace_ids(const std::vector<std::vector<std::int32_t>>& ids,
                   const std::vector<std::vector<std::int32_t>>& labels, std::int64_t vocabulary) {
  return joined(table_of(ids, "input_ids"),
                labels.empty() ? table_of(ids, "input_ids") : table_of(labels, "labels"), vocabulary,
                "in memory");
}

}  // namespace mantissa::train
