#include "mantissa/text/chat/meter.h"

#include "mantissa/text/chat/error.h"

namespace mantissa::chat {

void Meter::too_many_steps() const {
  throw Fault("the template takes more than {} steps. Fix: shorten its loops or the conversation",
              limits_.steps);
}

void Meter::too_much_memory() const {
  throw Fault("the template needs more than {} MiB. Fix: shorten its text or the conversation",
              limits_.bytes >> 20);
}

void Meter::too_deep() const {
  throw Fault("more than {} nested evaluations. Fix: remove the endless recursion of a macro", limits_.depth);
}

}  // namespace mantissa::chat
