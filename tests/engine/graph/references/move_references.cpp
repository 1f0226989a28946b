#include <algorithm>
#include <numeric>

#include "engine/graph/references/references.h"
#include "kernels/reference/gather.h"

namespace mantissa::graph::testing {
namespace {

/// The first input's values: a change of format without its rounding.
void copied(const ReferenceCall& c) {
  c.outputs[0].values = c.inputs[0].values;
}

void contribution(const ReferenceCall& c) {
  c.outputs[0].values = c.inputs[1].values;
}

void positions(const ReferenceCall& c) {
  for (const Segment& s : c.extent.segments) {
    for (std::int64_t t = 0; t < s.length; ++t)
      c.outputs[0].data()[s.begin + t] = static_cast<double>(s.position + t);
  }
}

void cache_append(const ReferenceCall& c) {
  const std::int64_t capacity = c.attributes.integer("capacity");
  const std::int64_t width = c.inputs[0].width;
  for (const Segment& s : c.extent.segments) {
    std::copy_n(c.inputs[0].data() + s.begin * width, s.length * width,
                c.outputs[0].data() + (s.slot * capacity + s.position) * width);
  }
}

void split(const ReferenceCall& c) {
  std::int64_t first = 0;
  for (ReferenceOperand& part : c.outputs) {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      const double* row = c.inputs[0].data() + i * c.inputs[0].width + first;
      std::copy_n(row, part.width, part.data() + i * part.width);
    }
    first += part.width;
  }
}

void copy_part(const ReferenceOperand& part, ReferenceOperand& out, std::int64_t first) {
  for (std::int64_t i = 0; i < part.rows; ++i)
    std::copy_n(part.data() + i * part.width, part.width, out.data() + i * out.width + first);
}

void split_grad(const ReferenceCall& c) {
  const std::vector<std::int64_t> sizes = c.attributes.integers("sizes"),
                                  parts = c.attributes.integers("parts");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto before = sizes.begin() + parts[i];
    copy_part(c.inputs[i], c.outputs[0], std::accumulate(sizes.begin(), before, std::int64_t{0}));
  }
}

void concat(const ReferenceCall& c) {
  std::int64_t first = 0;
  for (const ReferenceOperand& part : c.inputs) {
    copy_part(part, c.outputs[0], first);
    first += part.width;
  }
}

/// The id whose row of the table is not trained; -1: none.
std::int64_t padding_id(const Attributes& attributes) {
  return attributes.integer("padding_id", -1);
}

std::vector<std::int32_t> whole(const ReferenceOperand& ids) {
  return {ids.values.begin(), ids.values.end()};
}

void rows_of_table(const ReferenceCall& c, const ReferenceOperand& table, const ReferenceOperand& ids) {
  kernels::reference::gather(c.outputs[0].rows, c.outputs[0].width, table.data(), whole(ids).data(),
                             c.outputs[0].data());
}

void gather(const ReferenceCall& c) {
  rows_of_table(c, c.inputs[1], c.inputs[0]);
}

void select(const ReferenceCall& c) {
  rows_of_table(c, c.inputs[0], c.inputs[1]);
}

void select_dx(const ReferenceCall& c) {
  kernels::reference::gather_backward(c.inputs[0].rows, c.outputs[0].rows, c.outputs[0].width,
                                      whole(c.inputs[1]).data(), c.inputs[0].data(), c.outputs[0].data());
}

void gather_dtable(const ReferenceCall& c) {
  kernels::reference::gather_backward(c.inputs[1].rows, c.outputs[0].rows, c.outputs[0].width,
                                      whole(c.inputs[0]).data(), c.inputs[1].data(), c.outputs[0].data(),
                                      padding_id(c.attributes));
}

void gather_add_rows(const ReferenceCall& c) {
  std::vector<double> sum(c.outputs[0].values.size());
  kernels::reference::gather_backward(c.inputs[2].rows, c.outputs[0].rows, c.outputs[0].width,
                                      whole(c.inputs[1]).data(), c.inputs[2].data(), sum.data(),
                                      padding_id(c.attributes));
  for (std::size_t i = 0; i < sum.size(); ++i) c.outputs[0].values[i] += sum[i];
}

}  // namespace

std::span<const NamedReference> move_references() {
  static constexpr NamedReference kAll[] = {
      {"round", copied},
      {"quantize", copied},
      {"accumulate", contribution},
      {"positions", positions},
      {"cache_append", cache_append},
      {"split", split},
      {"split.grad", split_grad},
      {"concat", concat},
      {"concat.grad", split},
      {"gather", gather},
      {"gather.dtable", gather_dtable},
      {"gather.add_rows", gather_add_rows},
      {"select", select},
      {"select.dx", select_dx},
  };
  return kAll;
}

}  // namespace mantissa::graph::testing
