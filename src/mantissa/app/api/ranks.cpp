#include "mantissa/app/api/ranks.h"

#include <optional>
#include <utility>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/comm/launch.h"

namespace mantissa::api {

bool is_first_started(Environment environment) {
  return comm::is_first(environment);
}

Ranks::Ranks() : communicator_(std::make_shared<comm::Communicator>()) {}

int Ranks::rank() const {
  return communicator_->rank();
}

int Ranks::size() const {
  return communicator_->size();
}

int Ranks::local_size() const {
  return communicator_->local_size();
}

std::string Ranks::place() const {
  return communicator_->place(rank());
}

Ranks::Farewell Ranks::leave(Ending ending) const {
  comm::Communicator::Farewell farewell = communicator_->leave(static_cast<comm::Ending>(ending));
  return {farewell.together, farewell.tells, std::move(farewell.hanging)};
}

void Ranks::on_lost(std::function<void(const RankLost&)> handler) const {
  communicator_->on_lost(std::move(handler));
}

void Ranks::disconnect() const {
  communicator_->disconnect();
}

void Ranks::end_all(int code) const {
  communicator_->end_all(code);
}

Ranks open_ranks(Environment environment) {
  const std::optional<comm::Mpi> mpi = comm::launcher(environment);
  return mpi ? Ranks(std::make_shared<comm::Communicator>(comm::join(*mpi))) : Ranks();
}

}  // namespace mantissa::api
