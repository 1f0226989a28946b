// For each registered op: operands for its test, and the error that its roundings allow.
#pragma once

#include <vector>

#include "engine/graph/adapter_rows.h"
#include "engine/graph/added_op.h"
#include "engine/graph/attention_rows.h"
#include "engine/graph/column_rows.h"
#include "engine/graph/head_rows.h"
#include "engine/graph/linear_rows.h"
#include "engine/graph/norm_rows.h"
#include "engine/graph/op_case.h"
#include "engine/graph/op_sizes.h"
#include "engine/graph/pointwise_rows.h"
#include "engine/graph/recurrent_rows.h"
#include "engine/graph/update_rows.h"

namespace mantissa::graph::testing {

inline std::vector<OpRow> op_rows() {
  using T = std::int64_t;
  std::vector<OpRow> rows = added_rows();
  add_linear_rows(rows);
  add_norm_rows(rows);
  add_adapter_rows(rows);
  for (OpRow& row : attention_rows()) rows.push_back(std::move(row));
  rows.push_back(
      {"gather", "",
       [](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t), Stored::ids, 1, 50}, {Shape{50, kWidth}}};
       },
       chain(0)});
  rows.push_back(
      {"gather.dtable",
       "",
       [](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t), Stored::ids, 1, 50}, {Shape::tokens(t, {kWidth})}};
       },
       [](const Case& c) { return Bound{token_chain(c)}; },
       {{"entries", 50}}});
  rows.push_back(
      {"gather.dtable",
       "Padding",
       [](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t), Stored::ids, 1, 3}, {Shape::tokens(t, {kWidth})}};
       },
       [](const Case& c) { return Bound{token_chain(c)}; },
       {{"entries", 3}, {"padding_id", T{1}}}});
  rows.push_back({"gather.add_rows",
                  "Padding",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape{3, kWidth}, Stored::arithmetic},
                                                  {Shape::tokens(t), Stored::ids, 1, 3},
                                                  {Shape::tokens(t, {kWidth})}};
                  },
                  [](const Case& c) { return Bound{token_chain(c) + 1}; },
                  {{"padding_id", T{2}}}});
  rows.push_back({"gather.add_rows", "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape{50, kWidth}, Stored::arithmetic},
                                                  {Shape::tokens(t), Stored::ids, 1, 50},
                                                  {Shape::tokens(t, {kWidth})}};
                  },
                  [](const Case& c) { return Bound{token_chain(c) + 1}; }});
  add_column_rows(rows);
  rows.push_back({"positions",
                  "",
                  [](T t, T) {
                    return std::vector<InputSpec>{{Shape::tokens(t), Stored::ids, 1, 50}};
                  },
                  chain(0),
                  {{"limit", 1000}},
                  3});
  rows.push_back(
      {"select", "",
       [](T t, T r) {
         return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})}, {Shape::rows(r), Stored::ids, 1, t}};
       },
       chain(0)});
  rows.push_back(
      {"select.dx",
       "",
       [](T t, T r) {
         return std::vector<InputSpec>{{Shape::rows(r, {kWidth})}, {Shape::rows(r), Stored::ids, 1, t}};
       },
       [](const Case& c) { return Bound{static_cast<double>(c.extent().rows.size())}; },
       {{"tokens", kPositions}}});
  add_pointwise_rows(rows);
  rows.push_back({"accumulate", "",
                  [](T, T) {
                    return std::vector<InputSpec>(2, {Shape{50, kWidth}, Stored::arithmetic});
                  },
                  chain(1)});
  rows.push_back({"round", "", same_shape(1, Stored::arithmetic), chain(0)});
  rows.push_back({"quantize",
                  "",
                  same_shape(1, Stored::arithmetic),
                  chain(0),
                  {{"blocks", -1},
                   {"along_rows", false},
                   {"scale_rounding", 0},
                   {"length", 0},
                   {"hadamard", false},
                   {"current", false},
                   {"margin", 0}}});
  add_head_rows(rows);
  add_recurrent_rows(rows);
  add_update_rows(rows);
  rows.push_back(
      {"cache_append",
       "",
       [](T t, T) {
         return std::vector<InputSpec>{{Shape::tokens(t, {kWidth})}, {Shape{kSlots, kPositions, kWidth}}};
       },
       chain(0),
       {{"capacity", kPositions}},
       3});
  return rows;
}

}  // namespace mantissa::graph::testing
