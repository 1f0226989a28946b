// The test of an op in one file of this folder: its rows, its references and its nets, in place of lines in
// op_rows.h, references/ and gradient_test.cpp. rope_op_test.cpp is an example.
#pragma once

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/graph/op_case.h"
#include "engine/graph/references/references.h"

namespace mantissa::graph::testing {

/// Adds graphs that end in a number, by the id of the op, for its gradient (net.h).
using AddNets = void (*)(std::map<std::string_view, Graph>& all);

inline std::vector<OpRow>& added_rows() {
  static std::vector<OpRow> all;
  return all;
}
inline std::vector<AddNets>& added_nets() {
  static std::vector<AddNets> all;
  return all;
}

/// A constant of this type in a test file adds to the tests of all ops.
struct AddedOp {
  AddedOp(std::vector<OpRow> rows, const std::vector<NamedReference>& references, AddNets nets = nullptr) {
    for (OpRow& row : rows) added_rows().push_back(std::move(row));
    added_references().insert(added_references().end(), references.begin(), references.end());
    if (nets != nullptr) added_nets().push_back(nets);
  }
};

}  // namespace mantissa::graph::testing
