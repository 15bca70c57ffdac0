// The one compilation of what runtime/instances/nlohmann/json.hpp declares.
#define EJK_JSON_INSTANCE template
#include <nlohmann/json.hpp>
