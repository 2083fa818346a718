// "did you mean ...?"
#pragma once

#include <string>
#include <vector>

namespace trainyard::cli {

// The candidate that `word` was most likely meant to be; "" when none is near.
std::string closestWord(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace trainyard::cli
