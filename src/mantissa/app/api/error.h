// The errors that the public functions throw.
#pragma once

#include "mantissa/core/base/error.h"
