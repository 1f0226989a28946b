// A list of token ids, as text or as JSON.
#include "check.h"
#include "mantissa/app/api/tokenizer.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(ids, fuzz::mutate_json) {
  fuzz::expect_only_errors([&] {
    for (const std::int32_t id : api::read_ids({reinterpret_cast<const char*>(data), size}, "ids.json"))
      fuzz::require(id >= 0, "an id is not negative");
  });
  return 0;
}
