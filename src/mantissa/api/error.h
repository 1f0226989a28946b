// The errors that the public functions throw.
#pragma once

#include "mantissa/base/error.h"
