// Watches an offer, in simulation: once valid it stays, unchanged, until it is taken. Synthesis sees nothing of it.
module cip_handshake #(
    parameter int unsigned Width = 1
) (
    input logic             clk_i,
    input logic             rst_i,
    input logic             valid_i,
    input logic             ready_i,
    input logic [Width-1:0] payload_i
);
`ifndef SYNTHESIS
  logic held_q;
  logic [Width-1:0] payload_q;
  always_ff @(posedge clk_i) begin
    held_q <= !rst_i && valid_i && !ready_i;
    if (valid_i && !ready_i) payload_q <= payload_i;
    if (!rst_i && held_q) begin
      assert (valid_i) else $error("cip_handshake: an offer was withdrawn");
      assert (payload_i == payload_q) else $error("cip_handshake: an offer changed before it was taken");
    end
  end
`endif
endmodule
