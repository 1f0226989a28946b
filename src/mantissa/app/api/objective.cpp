#include "mantissa/app/api/objective.h"

#include "mantissa/lab/objective/replay.h"

namespace mantissa::api {

ObjectiveReplay replay_objective(const ObjectiveOptions& o) {
  lab::ObjectiveReplay r = lab::replay_objective({o.name, o.in, o.out, o.changes, o.overwrite});
  return {r.loss, std::move(r.notes), std::move(r.text), std::move(r.json)};
}

}  // namespace mantissa::api
