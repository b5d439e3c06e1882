// A target of the classifier that does not count.
#pragma once

inline constexpr int ignored_target = -1;
