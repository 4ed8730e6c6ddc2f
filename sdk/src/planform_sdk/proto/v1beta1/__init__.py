"""Messages of protocol version v1beta1; what there is, the stub beside this file and `run_function.proto` say."""

from planform_sdk.proto import module_contents

globals().update(module_contents("v1beta1"))
