#include "mantissa/app/api/needle.h"

#include <fmt/format.h>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/generate/eval/needle.h"
#include "mantissa/report/heat_map.h"
#include "mantissa/report/page.h"

namespace mantissa::api {
namespace {

std::string page_of(const Needle& needle, const NeedleOptions& o, const std::string& model) {
  report::HeatMap map;
  map.label = "Share of right answers by depth and length.";
  map.row_name = "depth";
  map.column_name = "length in tokens";
  map.height = 400;
  const std::size_t depths = o.depths.size(), lengths = needle.cells.size() / depths;
  for (std::size_t l = 0; l < lengths; ++l)
    map.columns.push_back(std::to_string(needle.cells[l * depths].length));
  for (std::size_t d = 0; d < depths; ++d) {
    report::HeatRow row;
    row.label = row.name = fmt::format("{:.0f} %", 100 * o.depths[d]);
    for (std::size_t l = 0; l < lengths; ++l) {
      const NeedleCell& cell = needle.cells[l * depths + d];
      row.values.push_back(static_cast<double>(cell.right) / static_cast<double>(cell.trials));
    }
    map.rows.push_back(std::move(row));
  }
  report::ColorScale scale;
  scale.name = "share of right answers";
  scale.bounds = {0.25, 0.5, 0.75, 1};
  scale.high_is_good = true;
  scale.text = [](double share) { return fmt::format("{:.0f} %", 100 * share); };
  report::Figure figure;
  figure.title = "Answers by depth and length";
  figure.reading = "A row is the share of the text before the number; a column is the length of the prompt.";
  figure.body = report::to_html(map, scale);
  figure.legend = report::legend_html(scale);
  report::Page page;
  page.kind = "needle";
  page.title = "Needle in a haystack";
  page.subtitle = model;
  page.summary = fmt::format("<p>{:.1f} % of all answers are right, of {} for each length and depth.</p>",
                             100 * needle.accuracy, o.trials);
  page.sections.push_back({"map", "map", "Heat map", "", report::to_html(figure)});
  return report::to_html(page);
}

}  // namespace

Needle find_needles(const Model& model, const NeedleOptions& o, const Precision& precision,
                    const Hardware& hardware, std::stop_token stop, const Ranks& ranks) {
  const auto device = device_for(hardware, 0, ranks.local_size());
  const weights::ModelSource source = source_of(model);
  const eval::NeedleResult found = eval::find_needles(source, policy_for(precision, source),
                                                      {o.lengths, o.depths, o.trials, o.haystack, o.seed},
                                                      *device, stop, &ranks.communicator());
  Needle needle;
  for (const eval::NeedleCell& c : found.cells)
    needle.cells.push_back({c.length, c.depth, c.trials, c.right});
  needle.accuracy = found.accuracy();
  needle.interrupted = found.interrupted;
  needle.page =
      page_of(needle, o, source.directory.empty() ? source.weights.string() : source.directory.string());
  return needle;
}

void check_page(const std::filesystem::path& file, const Model& model, const NeedleOptions& options) {
  const weights::ModelSource source = source_of(model);
  const std::filesystem::path inputs[] = {source.directory, source.weights, options.haystack};
  disk::check_output({file, disk::Shape::stream, true, "--page"}, disk::with_files(inputs));
  if (disk::is_file(file) && !report::is_page(file)) {
    throw FileError(fmt::format(
        "{}: exists already, and is not a page of this program; choose another --page", file.string()));
  }
}

void write_page(const std::filesystem::path& file, const std::string& page) {
  disk::write_file_atomic(disk::given(file, true), page);
}

}  // namespace mantissa::api
