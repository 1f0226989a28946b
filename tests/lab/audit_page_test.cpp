#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lab/synthetic_audit.h"
#include "mantissa/lab/audit/audit.h"
#include "mantissa/lab/audit/verdict.h"
#include "report/well_formed.h"

namespace mantissa::lab {
namespace {

using test::fault_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool has(const std::string& html, const std::string& text) {
  return html.find(text) != std::string::npos;
}

// "nan" as a number would print it: not a part of a word.
bool shows_nan(const std::string& html) {
  for (std::size_t at = html.find("nan"); at != std::string::npos; at = html.find("nan", at + 1))
    if (std::isalpha(static_cast<unsigned char>(html[at - 1])) == 0 &&
        std::isalpha(static_cast<unsigned char>(html[at + 3])) == 0)
      return true;
  return false;
}

TEST(AuditPage, HasEverySection) {
  const std::string html = to_html(test::synthetic_audit());
  EXPECT_EQ(fault_of(html), "");
  for (const char* id :
       {"findings", "first", "course", "range", "rounding", "updates", "magnitudes", "plan", "method"})
    EXPECT_TRUE(has(html, std::string("<section id=\"") + id + "\">")) << id;
  for (const char* text : {"The run stopped", "Loss scale", "skipped step", "Too large", "Too small",
                           "Size of the rounding error", "Direction of the rounding error", "Lost updates",
                           "the same before rounding", "65\u202f504", "What the operation read",
                           "tested by replay", "not tested", "not caused by a number format",
                           "mantissa train run.toml --precision 16-mixed --rule "
                           "&#39;model.layers.5.mlp.down_proj: compute=f32&#39;",
                           "mantissa audit run.toml --precision 16-mixed --steps 20", "Thresholds"})
    EXPECT_TRUE(has(html, text)) << text;
}

TEST(AuditPage, IsOnePageOfLessThanTwoMegabytes) {
  const std::string html = to_html(test::synthetic_audit());
  EXPECT_LT(html.size(), 2'000'000U);
  for (const char* word : {"http:", "https:", "url(", "@import", " src="})
    EXPECT_FALSE(has(html, word)) << word;
  EXPECT_FALSE(shows_nan(html));
}

TEST(AuditPage, LongRunsAreThinned) {
  const std::string html = to_html(test::synthetic_audit({.layers = 24, .steps = 300, .stops = false}));
  EXPECT_EQ(fault_of(html), "");
  EXPECT_LT(html.size(), 2'000'000U);
}

TEST(AuditPage, NoiseInEveryCellIsLessThanTwoAndAHalfMegabytes) {
  Audit audit = test::synthetic_audit();
  std::mt19937 random(3);
  for (ValueSeries& v : audit.values)
    for (ValueStep& s : v.steps) {
      const double share = std::exp2(-static_cast<double>(random() % 20));
      s.saturated = share;
      s.flushed = share;
      s.error_rms = share;
      s.error_mean = random() % 2 == 0 ? share : -share;
    }
  EXPECT_LT(to_html(audit).size(), 2'500'000U);
}

void lose_nothing(Audit& audit) {
  for (ValueSeries& v : audit.values)
    for (ValueStep& s : v.steps) {
      s.saturated = s.inf = s.nan = 0;
      s.flushed = s.overflowed = std::nullopt;
    }
}

TEST(AuditPage, DoesNotDenyTheLossesOfItsMaps) {
  Audit audit = test::synthetic_audit({.layers = 2, .steps = 3, .stops = false});
  audit.findings.clear();
  lose_nothing(audit);
  const auto page = [&] {
    audit.verdict = verdict_of(audit);
    return to_html(audit);
  };
  EXPECT_TRUE(has(page(), "no value left the range"));
  ValueSeries& value = audit.values.front();
  value.scope = "model.layers.1.mlp";
  value.steps.back().flushed = 0.04;
  const std::string html = page();
  EXPECT_FALSE(has(html, "no value left the range"));
  EXPECT_TRUE(has(html, "No loss beyond the thresholds"));
  EXPECT_TRUE(has(html, "At most 4.0 % of a value became zero (model.layers.1.mlp "));
  EXPECT_TRUE(has(html, "verdict good"));
  value.steps.back().flushed = 0.4;
  EXPECT_TRUE(has(page(), "verdict unknown")) << "not green above a red map";
}

TEST(AuditPage, ItsTitleNamesTheWorstProblem) {
  Audit audit = test::synthetic_audit({.layers = 2, .steps = 3, .stops = false});
  audit.findings.resize(2);
  audit.findings[0].kind = "rounded_away";
  audit.findings[0].scope = "model.norm";
  EXPECT_TRUE(has(to_html(audit), "2 problems found, the worst: lost updates in model.norm"));
  audit.findings.resize(1);
  EXPECT_TRUE(has(to_html(audit), "1 problem found: lost updates in model.norm"));
}

TEST(AuditPage, APolicyWithoutANameHasThatOfTheTitle) {
  Audit audit = test::synthetic_audit({.layers = 1, .steps = 2, .stops = false});
  audit.preset = "custom";
  audit.title = "run \"demo\" under bf16-mixed accumulate=bf16";
  EXPECT_TRUE(has(to_html(audit), "<dt>Precision</dt><dd>bf16-mixed accumulate=bf16</dd>"));
  audit.title = "a run";
  EXPECT_FALSE(has(to_html(audit), "<dt>Precision</dt>"));
}

TEST(AuditPage, HealthyRunIsGreenAndSaysSo) {
  Audit audit = test::synthetic_audit({.layers = 2, .steps = 3, .stops = false});
  audit.findings.clear();
  lose_nothing(audit);
  const std::string html = to_html(audit);
  EXPECT_TRUE(has(html, "verdict good"));
  EXPECT_TRUE(has(html, "No problem found"));
  EXPECT_FALSE(has(html, "<section id=\"first\">"));
}

TEST(AuditPage, FindingsAloneAreAmberOrRedByKind) {
  Audit audit = test::synthetic_audit({.layers = 2, .steps = 3, .stops = false});
  EXPECT_TRUE(has(to_html(audit), "verdict bad"));
  std::erase_if(audit.findings, [](const Finding& f) { return f.kind != "rounded_away"; });
  EXPECT_TRUE(has(to_html(audit), "verdict warn"));
  EXPECT_TRUE(has(to_html(audit), "1 problem found"));
}

/// The largest value of the format's range is not evidence of an overflow unless it is said to be finite.
TEST(AuditPage, TheLargestMagnitudeOfAnOverflowIsOfFiniteValues) {
  Audit audit;
  audit.findings.emplace_back();
  audit.findings.back().kind = "overflow";
  audit.findings.back().evidence = {{"absmax", 25680}};
  EXPECT_TRUE(has(to_html(audit), "Largest finite magnitude"));
  audit.findings.back().kind = "underflow";
  EXPECT_FALSE(has(to_html(audit), "Largest finite magnitude"));
}

/// The first result of an op with several has the op's name.
TEST(AuditPage, NamesAnOpOnce) {
  ValueSeries value;
  value.op = value.name = "rmsnorm";
  EXPECT_EQ(value.op_and_name(), "rmsnorm");
  value.name = "rstd";
  EXPECT_EQ(value.op_and_name(), "rmsnorm rstd");
  value.name = "";
  EXPECT_EQ(value.op_and_name(), "rmsnorm");
}

TEST(AuditPage, ThresholdsAreWords) {
  Audit audit;
  audit.thresholds = {{"scale_low", 64}, {"another_one", 2}};
  const std::string html = to_html(audit);
  EXPECT_TRUE(has(html, "the loss scale that it falls to"));
  EXPECT_TRUE(has(html, "another one"));
}

TEST(AuditPage, EmptyAuditIsAPage) {
  const std::string html = to_html(Audit{});
  EXPECT_EQ(fault_of(html), "");
  EXPECT_TRUE(has(html, "Nothing was observed"));
}

TEST(AuditPage, ShowsTheRunBeforeTheReplay) {
  Audit audit = test::synthetic_audit({.layers = 1, .steps = 2, .stops = false});
  EXPECT_FALSE(has(to_html(audit), "the run before"));
  for (StepPoint& p : audit.points) p.step += 30;
  for (int s = 1; s <= 30; ++s)
    audit.earlier.push_back(
        {.step = s, .loss = 5.0 - 0.1 * s, .grad_norm = 1, .loss_scale = 4096, .skipped = s == 7});
  for (const bool stopped : {false, true}) {
    if (stopped) audit.points.clear();
    const std::string html = to_html(audit);
    EXPECT_EQ(fault_of(html), "");
    EXPECT_TRUE(has(html, "wrote to metrics.jsonl"));
    EXPECT_EQ(has(html, "it stopped at the first step of the replay"), stopped);
    EXPECT_FALSE(has(html, "No step was skipped."));
    EXPECT_FALSE(has(html, "No step was completed."));
  }
}

TEST(AuditPage, OneStepAndAHundredLayersArePages) {
  EXPECT_EQ(fault_of(to_html(test::synthetic_audit({.layers = 1, .steps = 1, .stops = false}))), "");
  EXPECT_EQ(fault_of(to_html(test::synthetic_audit({.layers = 100, .steps = 2, .stops = true}))), "");
}

TEST(AuditPage, ValuesThatAreNotFiniteAreNotPrintedAsNan) {
  Audit audit = test::synthetic_audit({.layers = 3, .steps = 4, .stops = true});
  const double inf = std::numeric_limits<double>::infinity();
  int turn = 0;
  for (StepPoint& p : audit.points) p.loss = p.grad_norm = turn++ % 2 == 0 ? kNan : inf;
  for (ValueSeries& v : audit.values)
    for (ValueStep& s : v.steps) {
      s.absmax = s.rms = s.mean = turn++ % 2 == 0 ? kNan : inf;
      s.flushed = s.error_rms = s.error_mean = s.overflowed = kNan;
      s.nan = 1;
    }
  for (ParameterSeries& p : audit.weights)
    for (auto& [step, h] : p.steps) {
      h.updates_lost = h.grads_flushed = h.grad_absmax = kNan;
      h.weight_absmax = inf;
      h.scale = inf;
    }
  for (Finding& f : audit.findings) f.evidence["absmax"] = f.share = kNan;
  audit.thresholds["bias"] = kNan;
  audit.first_non_finite->value = kNan;
  audit.first_non_finite->inputs[0].absmax = inf;
  const std::string html = to_html(audit);
  EXPECT_EQ(fault_of(html), "");
  EXPECT_FALSE(shows_nan(html));
}

TEST(AuditPage, HostileNamesStayText) {
  const std::string evil = "</svg><script>x</script>'\"&\xff.0.w";
  Audit audit = test::synthetic_audit({.layers = 2, .steps = 2, .stops = true});
  audit.title = audit.command = audit.policy = audit.preset = audit.model = audit.verdict = audit.stopped =
      evil;
  for (ValueSeries& v : audit.values) v.scope = v.op = v.name = v.pass = v.decided_by = evil;
  for (ParameterSeries& p : audit.weights) p.name = evil + p.name;
  for (plan::PlanRow& r : audit.plan) r.scope = r.op = r.pass = r.stored = r.output = r.decided_by = evil;
  for (Finding& f : audit.findings) {
    f.kind = f.scope = f.op = f.pass = f.text = evil;
    f.evidence[evil] = 1;
    if (f.cure) f.cure->arguments = {evil};
  }
  audit.thresholds[evil] = 1;
  FirstNonFinite& first = *audit.first_non_finite;
  first.scope = first.op = first.pass = first.text = first.inputs[0].name = evil;
  const std::string html = to_html(audit);
  EXPECT_EQ(fault_of(html), "");
  EXPECT_FALSE(has(html, "<script>x"));
  EXPECT_TRUE(nlohmann::json::accept(to_json(audit)));
}

TEST(AuditPage, PlanSharesRowsBetweenEqualLayers) {
  Audit audit;
  for (int layer = 0; layer < 4; ++layer)
    audit.plan.push_back(test::synthetic_row("model.layers." + std::to_string(layer) + ".mlp", "matmul",
                                             "forward", layer == 2 ? "f32" : "bf16"));
  const std::string html = to_html(audit);
  EXPECT_TRUE(has(html, "{0-1,3}."));
  EXPECT_TRUE(has(html, "2."));
  EXPECT_TRUE(has(html, "<span class=\"fmt bf16\">bf16</span>"));
}

TEST(AuditJson, HasTheKeysOfTheContract) {
  const auto json = nlohmann::ordered_json::parse(to_json(test::synthetic_audit()));
  for (const char* key : {"policy", "steps", "thresholds", "findings"})
    EXPECT_TRUE(json.contains(key)) << key;
  const auto& finding = json["findings"][0];
  std::vector<std::string> keys;
  for (const auto& [key, value] : finding.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"kind", "scope", "op", "pass", "step", "rows", "share",
                                            "evidence", "rule", "cure", "tested", "alternatives", "text"}));
  EXPECT_EQ(finding["cure"][0], "--rule");
  EXPECT_EQ(finding["tested"], true);
  EXPECT_TRUE(json["findings"][2]["cure"].is_null());
  EXPECT_TRUE(json["findings"][2]["rule"].is_null());
  EXPECT_EQ(json["findings"][2]["tested"], false);
}

TEST(AuditJson, WritesNullForNumbersThatAreNotFinite) {
  Audit audit = test::synthetic_audit({.layers = 1, .steps = 1, .stops = false});
  audit.findings[0].share = kNan;
  audit.findings[0].evidence["absmax"] = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(to_json(audit));
  EXPECT_TRUE(json["findings"][0]["share"].is_null());
  EXPECT_TRUE(json["findings"][0]["evidence"]["absmax"].is_null());
}

}  // namespace
}  // namespace mantissa::lab
