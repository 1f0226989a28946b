// The complete public library, in namespace mantissa::api, with one header for each topic. No function exits
// the process, prints, or reads an environment variable. Data and weights may come from memory, events are
// reported to callbacks, and a stop token stops a computation. User errors are thrown as mantissa::Error
// (api/error.h); the message states the fault, its place and the fix.
#pragma once

#include "mantissa/api/audit.h"
#include "mantissa/api/chat.h"
#include "mantissa/api/compare.h"
#include "mantissa/api/config.h"
#include "mantissa/api/convert.h"
#include "mantissa/api/data.h"
#include "mantissa/api/diff.h"
#include "mantissa/api/doctor.h"
#include "mantissa/api/error.h"
#include "mantissa/api/evaluate.h"
#include "mantissa/api/generate.h"
#include "mantissa/api/hardware.h"
#include "mantissa/api/inspect.h"
#include "mantissa/api/loss_scale.h"
#include "mantissa/api/merge.h"
#include "mantissa/api/model.h"
#include "mantissa/api/needle.h"
#include "mantissa/api/new_config.h"
#include "mantissa/api/objective.h"
#include "mantissa/api/plan.h"
#include "mantissa/api/precision.h"
#include "mantissa/api/reward.h"
#include "mantissa/api/tensor.h"
#include "mantissa/api/tokenizer.h"
#include "mantissa/api/trace.h"
#include "mantissa/api/train.h"
#include "mantissa/api/version.h"
