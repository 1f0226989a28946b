// The complete public library, in namespace mantissa::api, with one header for each topic. No function exits
// the process, prints, or reads an environment variable. Data and weights may come from memory, events are
// reported to callbacks, and a stop token stops a computation. User errors are thrown as mantissa::Error
// (app/api/error.h); the message states the fault, its place and the fix.
#pragma once

#include "mantissa/app/api/audit.h"
#include "mantissa/app/api/base.h"
#include "mantissa/app/api/chat.h"
#include "mantissa/app/api/compare.h"
#include "mantissa/app/api/config.h"
#include "mantissa/app/api/convert.h"
#include "mantissa/app/api/data.h"
#include "mantissa/app/api/diff.h"
#include "mantissa/app/api/doctor.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/evaluate.h"
#include "mantissa/app/api/generate.h"
#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/inspect.h"
#include "mantissa/app/api/loss_scale.h"
#include "mantissa/app/api/merge.h"
#include "mantissa/app/api/model.h"
#include "mantissa/app/api/needle.h"
#include "mantissa/app/api/new_config.h"
#include "mantissa/app/api/objective.h"
#include "mantissa/app/api/plan.h"
#include "mantissa/app/api/precision.h"
#include "mantissa/app/api/reward.h"
#include "mantissa/app/api/tensor.h"
#include "mantissa/app/api/tokenizer.h"
#include "mantissa/app/api/trace.h"
#include "mantissa/app/api/train.h"
#include "mantissa/app/api/version.h"
