// The routers of an audit: how many tokens have other experts than in f32.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/lab/audit/sections.h"
#include "mantissa/report/number_text.h"

namespace mantissa::lab {

report::Section routers_section(const Audit& audit) {
  report::Table table{.label = "Routers",
                      .columns = {{"Router"},
                                  {"Experts of a token", true},
                                  {"Tokens", true},
                                  {"With other experts", true},
                                  {"Share", true},
                                  {"Largest share of a step", true}},
                      .rows = {}};
  const auto share = [](double s) { return report::raised_html(report::share_text(s)); };
  for (const RouterSeries& r : audit.routers) {
    double largest = 0;
    for (const RouterStep& s : r.steps) largest = std::max(largest, s.share());
    const RouterStep all = r.total();
    table.rows.push_back({{report::module_html(r.scope)},
                          {report::count_text(all.chosen)},
                          {report::count_text(all.tokens)},
                          {report::count_text(all.changed)},
                          {share(all.share()), all.share()},
                          {share(largest)}});
  }
  return {.id = "routers",
          .link = "Routers",
          .heading = "Tokens with other experts than in f32",
          .intro =
              "A router sends a token to the experts with the largest logits. Where two logits are close, "
              "rounding in the router, or in the layers before it, sends the token to another expert than "
              "in the same step in f32, with the same weights.",
          .body = to_html(table)};
}

}  // namespace mantissa::lab
