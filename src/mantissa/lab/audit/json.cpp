#include <nlohmann/json.hpp>

#include "mantissa/lab/audit/audit.h"

namespace mantissa::lab {
namespace {

using Json = nlohmann::ordered_json;  // writes numbers that are not finite as null

Json json_of(const Finding& f) {
  Json json = Json::object();
  json["kind"] = f.kind;
  json["scope"] = f.scope;
  json["op"] = f.op;
  json["pass"] = f.pass;
  json["step"] = f.step;
  json["rows"] = f.rows;
  json["share"] = f.share > 0 ? nlohmann::json(f.share) : nlohmann::json();
  json["evidence"] = f.evidence;
  json["rule"] = nullptr;
  if (f.rule) json["rule"] = *f.rule;
  json["cure"] = nullptr;
  if (f.cure) json["cure"] = f.cure->arguments;
  json["tested"] = f.cure && f.cure->tested;
  json["alternatives"] = Json::array();
  for (const Alternative& a : f.alternatives)
    json["alternatives"].push_back(
        {{"cure", a.cure.arguments}, {"memory", a.memory}, {"step_seconds", a.step_seconds}});
  json["text"] = f.remark.empty() ? f.text : f.text + "; " + f.remark;
  return json;
}

Json json_of(const GradientStep& g) {
  return {{"step", g.step},     {"zeros", g.zeros}, {"vanished", g.vanished}, {"error", g.error},
          {"cosine", g.cosine}, {"rms", g.rms},     {"expected", g.expected}};
}

/// The gradients of every parameter beside those in f32.
Json gradients_of(const Audit& audit) {
  Json all = Json::array();
  for (const ParameterSeries& p : audit.weights) {
    if (p.gradient_steps.empty()) continue;
    Json one = {{"name", p.name}, {"steps", Json::array()}};
    for (const GradientStep& g : p.gradient_steps) one["steps"].push_back(json_of(g));
    all.push_back(std::move(one));
  }
  return all;
}

/// The routers' choices beside those in f32.
Json routers_of(const Audit& audit) {
  Json all = Json::array();
  for (const RouterSeries& r : audit.routers) {
    Json one = {{"scope", r.scope}, {"experts_per_token", r.total().chosen}, {"steps", Json::array()}};
    for (const RouterStep& s : r.steps)
      one["steps"].push_back({{"step", s.step}, {"tokens", s.tokens}, {"changed", s.changed}});
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

std::string to_json(const Audit& audit) {
  Json json = Json::object();
  json["policy"] = audit.policy;
  json["preset"] = audit.preset;
  json["model"] = audit.model;
  json["command"] = audit.command;
  json["steps"] = audit.steps;
  json["observed"] = audit.observed;
  json["verdict"] = audit.verdict;
  json["stopped"] = nullptr;
  if (!audit.stopped.empty()) json["stopped"] = audit.stopped;
  json["uninformative"] = nullptr;
  if (!audit.uninformative.empty()) json["uninformative"] = audit.uninformative;
  json["rounding_points"] = audit.points_of_rounding;
  json["not_observed"] = audit.unobserved;
  json["not_reached"] = audit.unreached;
  json["passes_not_observed"] = audit.passes;
  json["gradients_not_compared"] = nullptr;
  if (!audit.no_reference.empty()) json["gradients_not_compared"] = audit.no_reference;
  json["gradients"] = gradients_of(audit);
  json["routers"] = routers_of(audit);
  json["thresholds"] = audit.thresholds;
  json["findings"] = Json::array();
  for (const Finding& f : audit.findings) json["findings"].push_back(json_of(f));
  // Names and messages may contain bytes that are not UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mantissa::lab
