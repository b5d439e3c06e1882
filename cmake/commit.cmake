# Writes OUTPUT, a header that names the git commit of SOURCE ("unknown" outside of a checkout). An up-to-date
# header is left alone, so that nothing is recompiled. Run as: cmake -DSOURCE=... -DOUTPUT=... -P commit.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT commit)
  set(commit unknown)
endif()
set(text "#define PROJECT_COMMIT \"${commit}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} present)
endif()
if(NOT "${present}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
