#include "mantissa/app/api/ranks.h"

#include "mantissa/engine/comm/communicator.h"

namespace mantissa::api {

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

}  // namespace mantissa::api
