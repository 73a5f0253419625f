# The C interface as a library with headers and pkg-config file; included by the top Makefile.

.PHONY: capi bindings

PREFIX ?= $(abspath $(TARGET))/capi
# What the library is built with: `release`, or `test` where tests have built it already.
CAPI_PROFILE ?= release

capi: ## The C interface: libwaystation.so and .a, headers, waystation.pc into PREFIX (target/capi)
	$(CARGO) build --locked --profile $(CAPI_PROFILE) --package waystation-capi
	crates/waystation-capi/install.sh $(TARGET)/$(if $(filter test,$(CAPI_PROFILE)),debug,$(CAPI_PROFILE)) $(PREFIX)

# Needs the network once. Says what it skips; fails if nothing ran.
bindings: ## Programs and language bindings made for LevelDB, unmodified, over the C interface
	$(MAKE) capi CAPI_PROFILE=test PREFIX=$(abspath $(TARGET))/bindings/prefix
	crates/waystation-capi/tests/bindings.sh $(abspath $(TARGET))/bindings
