// The kernels of the report's own, dev/report/*.comp.
#pragma once
#include "llmc/launchpad/shaders.h"

extern const EmbeddedShader report_shaders[];
inline void use_report_shaders() { add_shaders(report_shaders); }
