// What every offer inside the engine promises, for simulation: once valid it stays, unchanged, until it is taken.
// Synthesis sees nothing of it.
module handshake #(
    parameter int WIDTH = 1
) (
    input logic             clk,
    input logic             reset,
    input logic             valid,
    input logic             ready,
    input logic [WIDTH-1:0] payload
);
`ifndef SYNTHESIS
  logic held;
  logic [WIDTH-1:0] held_payload;
  always_ff @(posedge clk) begin
    held <= !reset && valid && !ready;
    if (valid && !ready) held_payload <= payload;
    if (!reset && held) begin
      assert (valid) else $error("handshake: an offer was withdrawn");
      assert (payload == held_payload) else $error("handshake: an offer changed before it was taken");
    end
  end
`endif
endmodule
