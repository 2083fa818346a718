// Quantities as Kubernetes writes them: "500m", "1Gi", "12", "1e3".
#pragma once

#include <optional>
#include <string_view>

namespace trainyard::cli {

// Nothing for what is no quantity. To be compared, not to be counted with.
std::optional<double> parseQuantity(std::string_view text);

}  // namespace trainyard::cli
