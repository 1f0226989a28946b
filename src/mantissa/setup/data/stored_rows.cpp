#include "mantissa/setup/data/stored_rows.h"

#include <iterator>
#include <utility>

#include "mantissa/text/rows/row_reader.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {

StoredRows StoredRows::of_files(const std::vector<std::string>& files, const text::FileFormat& format) {
  StoredRows out;
  out.files_ = text::expand_files(files);
  for (std::size_t f = 0; f < out.files_.size(); ++f) {
    text::read_rows(
        out.files_[f],
        [&](const nlohmann::ordered_json& row, const text::FilePlace& place) {
          out.rows_.push_back({row.dump(), f, place});
          return true;
        },
        format);
  }
  return out;
}

StoredRows StoredRows::of(const text::GeneratedRows& generated) {
  StoredRows out;
  out.generated_ = generated;
  for (std::int64_t i = 0; i < generated.count; ++i) out.rows_.push_back({{}, 0, {.row = i}});
  return out;
}

StoredRow StoredRows::at(std::int64_t i) const {
  const Kept& kept = rows_.at(static_cast<std::size_t>(i));
  if (kept.json.empty())
    return {nlohmann::ordered_json::parse(generated_.json(kept.place.row)), generated_.where(kept.place.row)};
  return {nlohmann::ordered_json::parse(kept.json), kept.place.in(files_[kept.file])};
}

void StoredRows::keep(const std::vector<std::int64_t>& numbers) {
  std::vector<Kept> kept;
  for (const std::int64_t number : numbers)
    kept.push_back(std::move(rows_.at(static_cast<std::size_t>(number))));
  rows_ = std::move(kept);
}

StoredRows StoredRows::split_off(std::int64_t count) {
  StoredRows out;
  out.files_ = files_;
  out.generated_ = generated_;
  const auto first = rows_.end() - static_cast<std::ptrdiff_t>(count);
  out.rows_.assign(std::make_move_iterator(first), std::make_move_iterator(rows_.end()));
  rows_.erase(first, rows_.end());
  return out;
}

std::size_t StoredRows::bytes() const {
  std::size_t bytes = rows_.capacity() * sizeof(Kept);
  for (const Kept& kept : rows_) bytes += kept.json.capacity();
  return bytes;
}

}  // namespace mantissa::data
